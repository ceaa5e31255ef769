"""Limits on connections, so that those which send no request leave room for those that do."""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

with suppress(ImportError):  # not on Windows
    import resource

import uvicorn

from core.server.networks import site_of
from ui.serving.client_address import network_of

MAX_FILES = 65_536  # open files that the process allows itself, where the system does
RESERVED_FILES = 200  # for runs, threads and uploads
HEADER_SECONDS = 15.0  # to send a request's headers
SILENT_SECONDS = 75.0  # between two parts of a request's body, or two requests; proxies wait for at most 60
WATCH_SECONDS = 5.0
ACCEPTED_AT_ONCE = 16  # connections that are opened before the limits are applied to them


def raise_file_limit() -> None:
    """Allow this process as many open files as the system lets it have, at most ``MAX_FILES``."""
    if "resource" not in globals():
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections() -> int:
    """Return how many connections are held at a time: what is left of the open files that this process may have."""
    if "resource" not in globals():
        return MAX_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MAX_FILES if soft == resource.RLIM_INFINITY else min(soft, MAX_FILES)
    return max(allowed // 2, allowed - RESERVED_FILES)


class LimitedConnection:
    """Mixin of one of uvicorn's protocols: one connection, with limits; see ``limit_connections``."""

    most: int
    held: Counter[str]  # connections of each network, of the whole server

    # Set by uvicorn
    client: tuple[str, int] | None
    connections: set[Any]
    cycle: Any
    flow: Any
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Hold a new connection, if there is room or another one can go."""
        super().connection_made(transport)  # type: ignore[misc]
        self.heard_at = time.monotonic()
        self.has_served = False  # whether a request on it has been answered
        self.alarm: asyncio.TimerHandle | None = None
        self.network = network_of({"client": self.client})
        self.is_held = True
        self.held[self.network] += 1
        of_site = sum(count for each, count in self.held.items() if site_of(each) == site_of(self.network))
        if self.network and (self.held[self.network] > self.most // 2 or of_site > self.most * 3 // 4):
            self.drop()
            return
        if self.held.total() > self.most:
            others = [each for each in self.connections if each is not self and isinstance(each, LimitedConnection)]
            waiting = [each for each in others if not each.has_request()]
            min(waiting, key=lambda each: (each.has_served, each.heard_at), default=self).drop()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch."""
        super().connection_lost(exc)  # type: ignore[misc]
        self.let_go()
        if self.alarm is not None:
            self.alarm.cancel()

    def data_received(self, data: bytes) -> None:
        """Note when a request's headers are complete, or a part of its body arrives."""
        super().data_received(data)  # type: ignore[misc]
        if self.has_request():
            self.heard_at = time.monotonic()

    def on_response_complete(self) -> None:
        """Note when an answer is complete: from then on there is time for the next request."""
        self.heard_at, self.has_served = time.monotonic(), True
        super().on_response_complete()  # type: ignore[misc]

    def has_request(self) -> bool:
        """Whether the headers of a request have arrived that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def watch(self) -> None:
        """Close the connection once its client has been silent for too long, and look again in a moment."""
        is_answered_next = self.has_request() and (not self.cycle.more_body or self.flow.read_paused)
        limit = SILENT_SECONDS if self.has_request() or self.has_served else HEADER_SECONDS
        if not is_answered_next and time.monotonic() - self.heard_at > limit:
            self.drop()
            return
        self.alarm = self.loop.call_later(min(HEADER_SECONDS, WATCH_SECONDS), self.watch)

    def drop(self) -> None:
        """Close the connection without an answer."""
        self.transport.abort()
        self.connections.discard(self)
        self.let_go()

    def let_go(self) -> None:
        """Count it no longer."""
        if self.is_held:
            self.is_held = False
            self.held[self.network] -= 1
            if not self.held[self.network]:
                del self.held[self.network]


def limit_connections(server: uvicorn.Server, *, most: int) -> None:
    """Limit the connections of a server that has started; those that are open already are not affected.

    Of each address, except this machine's, at most half are held. If there are too many, the one that has waited
    longest without a request is closed, first of those that never had one answered. One that sends no headers, or only
    a part of a body, is closed after a while.
    """
    # One that uvicorn closes after five seconds, as it does by default, may be about to send its next request.
    server.config.timeout_keep_alive = round(SILENT_SECONDS)
    base = server.config.http_protocol_class
    server.config.http_protocol_class = type(
        "LimitedProtocol", (LimitedConnection, base), {"most": most, "held": Counter()}
    )
    for each in server.servers:
        _accept_few_at_once(each)


def _accept_few_at_once(server: asyncio.Server) -> None:
    """Let the event loop look at a few connections before it accepts the next ones.

    asyncio accepts all that wait, for uvicorn up to 2,048, and each takes a file from the start: a burst would leave
    none for saves, and close connections whose requests have just come.
    """
    if not isinstance(server.get_loop(), asyncio.SelectorEventLoop):  # on Windows, which accepts one after the other
        return
    loop: Any = server.get_loop()
    inside: Any = server
    for each in inside._sockets:
        options = {"sslcontext": inside._ssl_context, "server": server, "backlog": ACCEPTED_AT_ONCE}
        loop.call_soon_threadsafe(partial(loop._start_serving, inside._protocol_factory, each, **options))
