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
from ui.serving.long_calls import LongCalls
from ui.serving.sessions import LightSessions
from ui.serving.visitors import Presence, visitor_of

MAX_WAITING = 512  # calls in the queue, of all visitors; forty pages that open together have four each
EVENTS_PER_VISITOR, EVENTS_PER_NETWORK = 16, MAX_WAITING // 2
THREADS_PER_VISITOR, THREADS_PER_NETWORK = 12, 32  # of the 40 that Gradio and Starlette answer requests in
KEPT_SESSIONS = 64  # of which what Gradio keeps of their answers is not looked through
MAX_WAIT, SECONDS_BETWEEN_LOOKS = 8.0, 0.05  # for a thread of the network; a page gives up after ten seconds
_IN_THREADS = ("/gradio_api/component_server", "/gradio_api/run/", "/gradio_api/api/", "/download/")
_LIMITED = (*_IN_THREADS, "/gradio_api/mcp")  # those of MCP wait for calls


class FairQueue(Queue):
    """Gradio's queue of calls, of which no visitor and no network can fill more than a part.

    The next call to start is one of the network, and within it of the visitor, that has the fewest ahead of it. A
    network leaves one of the calls that may run together to the others. Of calls that compute for long, whatever their
    endpoint, it has one at a time, and then none for ``REST`` times as long as it took, while another network uses the
    page: else one that asks for report after report, or decodes with a wide beam, would take a core for good.

    Args:
        replaced: the queue, whose options are kept; no call has entered it yet.
        presence: knows which networks use the page; None on a computer with a single user.
    """

    def __init__(self, replaced: Queue, presence: Presence | None = None) -> None:
        super().__init__(
            live_updates=replaced.live_updates,
            concurrency_count=replaced.max_thread_count,
            update_intervals=replaced.update_intervals,
            max_size=replaced.max_size,
            blocks=replaced.blocks,
            default_concurrency_limit=replaced.default_concurrency_limit,
        )
        self.ANALYTICS_MAX_EVENTS = 1  # of 10,000 calls that Gradio remembers, for what it computes of them
        self._entering: list[Visitor] = []
        self._long_calls = LongCalls(presence)
        for function in self.blocks.fns.values():
            function.fn = self._long_calls.timed(function.fn)

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
        self._forget_answered()
        return pushed

    def get_events(self) -> tuple[list[Event], bool, str] | None:
        """Take the next call from the queue; None if none may start."""
        groups = [each for each in self.event_queue_per_concurrency_id.values() if each.queue]
        orders = [list(each.queue) for each in groups]
        for each, order in zip(groups, orders, strict=True):
            each.queue[:] = [event for event in order if not self._must_wait(event, each.concurrency_limit)]
        taken = super().get_events()
        events = [] if taken is None else taken[0]
        for each, order in zip(groups, orders, strict=True):
            each.queue[:] = [event for event in order if event not in events]
        for event in events:  # ``process_events`` starts later
            self._long_calls.start(event._id, _visitor(event), event.fn, event.concurrency_id)
        return taken

    async def process_events(self, events: list[Event], *arguments: Any, **options: Any) -> None:
        """Answer calls, and note how long they compute."""
        try:
            await super().process_events(events, *arguments, **options)
        finally:
            for event in events:
                self._long_calls.end(event._id, _visitor(event), event.fn)
                self._forget_session(event)

    def _must_wait(self, event: Event, limit: int | None) -> bool:
        return self._long_calls.must_wait(_visitor(event), event.fn, event.concurrency_id, limit)

    def compute_analytics_summary(self, records: Any) -> dict[str, Any]:
        """Compute nothing: pandas would take milliseconds after every call, and nobody looks at it."""
        return self.cached_event_analytics_summary

    def _forget_session(self, event: Event) -> None:
        """Drop the session of a call that named none: no later call can use it, and Gradio would keep thousands."""
        sessions = self.blocks.state_holder
        if event.session_hash == event._id and isinstance(sessions, LightSessions):
            sessions.forget(event.session_hash)

    def _forget_answered(self) -> None:
        """Drop what Gradio keeps of sessions that wait for nothing; it would be 7 KB of each of the last 2,000.

        A session's next call makes it anew. Ids of calls whose answers Gradio dropped, as nobody fetched them, go too.
        """
        ids, answers = self.pending_event_ids_session, self.pending_messages_per_session
        if len(answers) > KEPT_SESSIONS or len(ids) > KEPT_SESSIONS:
            for session in [session for session, waiting in ids.items() if not waiting or session not in answers]:
                del ids[session]
            for session in [session for session in answers if session not in ids]:
                del answers[session]


def refusal(visitor: Visitor, present: Iterable[Visitor], *, per_visitor: int, per_network: int) -> str:
    """Return why a visitor's call is refused beside those that wait or run, or ""; a single user has no limit."""
    if visitor.owner is None:
        return ""
    others = list(present)
    for whose, count, limit in (
        ("your", sum(each.owner == visitor.owner for each in others), per_visitor),
        ("your network's", sum(each.network == visitor.network != "" for each in others), per_network),
        ("your network's", sum(each.site == visitor.site != "" for each in others), per_network * 3 // 2),
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
