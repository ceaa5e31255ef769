"""Limits on the calls that one visitor, or one network, has waiting or running, so that the others are served."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from fastapi import HTTPException, Request
from gradio.data_classes import PredictBodyInternal
from gradio.queueing import Event, Queue
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from core.server.access import Visitor
from ui.serving.visitors import visitor_of

MAX_WAITING = 512  # calls in the queue, of all visitors; forty pages that open together have four each
EVENTS_PER_VISITOR, EVENTS_PER_NETWORK = 16, MAX_WAITING // 2
THREADS_PER_VISITOR, THREADS_PER_NETWORK = 12, 32  # of the 40 that Gradio and Starlette answer requests in
MAX_WAIT, SECONDS_BETWEEN_LOOKS = 8.0, 0.05  # for a thread of the network; a page gives up after ten seconds
_IN_THREADS = ("/gradio_api/component_server", "/gradio_api/run/", "/gradio_api/api/", "/download/")
_LIMITED = (*_IN_THREADS, "/gradio_api/mcp")  # those of MCP wait for calls


class FairQueue(Queue):
    """Gradio's queue of calls, of which no visitor and no network can fill more than a part.

    The next call to start is one of the network, and within it of the visitor, that has the fewest ahead of it.
    """

    def __init__(self, replaced: Queue) -> None:
        """Copy the options of a queue that no call has entered yet."""
        super().__init__(
            live_updates=replaced.live_updates,
            concurrency_count=replaced.max_thread_count,
            update_intervals=replaced.update_intervals,
            max_size=replaced.max_size,
            blocks=replaced.blocks,
            default_concurrency_limit=replaced.default_concurrency_limit,
        )
        self._entering: list[Visitor] = []

    async def push(
        self, body: PredictBodyInternal, request: Request, username: str | None
    ) -> tuple[bool, str | list[dict[str, Any]], Literal["success", "error", "queue_full", "validator_error"]]:
        """Add a call; HTTPException with status 429 if its visitor or network has too many."""
        visitor = visitor_of(request.scope)
        present = [*self._entering, *(_visitor(event) for event in self.event_ids_to_events.values())]
        if reason := refusal(visitor, present, per_visitor=EVENTS_PER_VISITOR, per_network=EVENTS_PER_NETWORK):
            raise HTTPException(429, reason)
        self._entering.append(visitor)
        try:
            pushed = await super().push(body, request, username)
        finally:
            self._entering.remove(visitor)
        for each in self.event_queue_per_concurrency_id.values():
            each.queue[:] = in_fair_order(each.queue)
        return pushed


def refusal(visitor: Visitor, present: Iterable[Visitor], *, per_visitor: int, per_network: int) -> str:
    """Return why a visitor's call is refused beside those that wait or run, or ""; a single user has no limit."""
    if visitor.owner is None:
        return ""
    others = list(present)
    for whose, count, limit in (
        ("your", sum(each.owner == visitor.owner for each in others), per_visitor),
        ("your network's", sum(each.network == visitor.network != "" for each in others), per_network),
    ):
        if count >= limit:
            return f"{count} of {whose} calls are waiting or running, and the limit is {limit}; try again in a moment"
    return ""


def in_fair_order(events: list[Event]) -> list[Event]:
    """Return waiting calls in the order to start: networks in turns, within a network visitors in turns."""
    by_visitor: Counter[tuple[str, str | None]] = Counter()
    turns = []
    for event in events:
        visitor = _visitor(event)
        turns.append((by_visitor[visitor.network, visitor.owner], visitor.network, event))
        by_visitor[visitor.network, visitor.owner] += 1
    by_network: Counter[str] = Counter()
    order = []
    for _, network, event in sorted(turns, key=lambda each: each[0]):  # stable: by arrival among equals
        order.append((by_network[network], event))
        by_network[network] += bool(network)  # those whose network is unknown are not one
    return [event for _, event in sorted(order, key=lambda each: each[0])]


def _visitor(event: Event) -> Visitor:
    return visitor_of(event.request.scope)


class ThreadLimits:
    """Middleware for requests of a visitor or network that occupies too many of the server's threads.

    A visitor's are refused. Those of a network wait for the others of it first: a class is behind one address.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._present: list[Visitor] = []  # both are used by the event loop only
        self._waiting: list[Visitor] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with status 429."""
        if scope["type"] != "http" or not scope["path"].startswith(_LIMITED):
            await self.app(scope, receive, send)
            return
        visitor = visitor_of(scope)
        if reason := await self._refusal(visitor):
            await JSONResponse({"detail": reason}, status_code=429)(scope, receive, send)
            return
        self._present.append(visitor)
        try:
            await self.app(scope, receive, send)
        finally:
            self._present.remove(visitor)

    async def _refusal(self, visitor: Visitor) -> str:
        """Wait until a visitor's network has a thread left, and return ""; or return why there is none."""
        own = [*self._present, *self._waiting]
        if reason := refusal(visitor, own, per_visitor=THREADS_PER_VISITOR, per_network=len(own) + 1):
            return reason
        limits = {"per_visitor": THREADS_PER_VISITOR, "per_network": THREADS_PER_NETWORK}
        deadline = time.monotonic() + MAX_WAIT
        self._waiting.append(visitor)
        try:
            while (reason := refusal(visitor, self._present, **limits)) and time.monotonic() < deadline:
                await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            return reason
        finally:
            self._waiting.remove(visitor)
