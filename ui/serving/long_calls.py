"""Which calls compute for long, and when a network that makes them must let the others have a turn."""

import functools
import inspect
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradio.block_function import BlockFunction
from gradio.context import LocalContext

from core.server.access import Visitor
from ui.events import CPU
from ui.serving.visitors import Presence

LONG_SECONDS = 0.5  # of a core; most calls take less than a tenth of it
REST = 3.0  # times as long as a call that computes for long
MAX_REMEMBERED = 10_000  # visitors and networks whose last calls are known


@dataclass(frozen=True)
class _Running:
    network: str
    group: str
    is_long: bool
    started: float


class LongCalls:
    """The calls that run, and how long each visitor's last ones computed.

    A call is expected to compute as long as the visitor's last one of the same function did; for a visitor who has made
    none, as the last one of a new visitor of the network did, since a program can invent visitors.

    Args:
        presence: knows which networks use the page; None on a computer with a single user.
    """

    def __init__(self, presence: Presence | None) -> None:
        self._presence = presence
        self._running: dict[str, _Running] = {}  # by id of the call
        self._computed: dict[str, float] = {}  # seconds of a core so far, by id of the call
        self._last: OrderedDict[tuple[str, str], float] = OrderedDict()  # by visitor or network, and function
        self._rested_at: dict[str, float] = {}  # when each network may make the next long call

    def timed(self, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Return a handler that notes how long it computes; one that yields or awaits is returned unchanged."""
        kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.iscoroutinefunction)
        if function is None or any(is_kind(function) for is_kind in kinds):
            return function

        @functools.wraps(function)
        def noting(*arguments: Any, **options: Any) -> Any:
            call, before = LocalContext.event_id.get(None), time.thread_time()  # waiting for others is not counted
            try:
                return function(*arguments, **options)
            finally:
                if call in self._running:
                    self._computed[call] = self._computed.get(call, 0.0) + time.thread_time() - before

        return noting

    def must_wait(self, visitor: Visitor, function: BlockFunction, group: str, limit: int | None) -> bool:
        """Whether a call may not start yet, for the sake of the visitors of other networks.

        Args:
            group: the calls that it shares the number of running ones with.
            limit: that number; None is no limit.
        """
        network, now = visitor.site, time.monotonic()
        if not network or self._presence is None:
            return False
        of_network = [each for each in self._running.values() if each.network == network]
        if limit is not None and limit > 2 and sum(each.group == group for each in of_network) >= limit - 1:
            return True  # one is always left for somebody else
        if not self._is_long(visitor, function) or not self._presence.is_elsewhere(visitor.network):
            return False
        return any(
            each.is_long or now - each.started > LONG_SECONDS for each in of_network
        ) or now < self._rested_at.get(network, 0.0)

    def start(self, call: str, visitor: Visitor, function: BlockFunction, group: str) -> None:
        """Note that a call starts."""
        is_long = self._is_long(visitor, function)
        self._running[call] = _Running(visitor.site, group, is_long, time.monotonic())

    def end(self, call: str, visitor: Visitor, function: BlockFunction) -> None:
        """Note that a call has ended; if it computed for long, its network rests."""
        running, now = self._running.pop(call, None), time.monotonic()
        computed = self._computed.pop(call, 0.0)
        if running is None:
            return
        if function.concurrency_id == CPU["concurrency_id"]:
            computed = now - running.started
        keys = [(visitor.owner or "", str(function._id))]
        if keys[0] not in self._last:
            keys.append((visitor.site, str(function._id)))
        for key in keys:
            self._last[key] = computed
            self._last.move_to_end(key)
        while len(self._last) > MAX_REMEMBERED:
            self._last.popitem(last=False)
        self._rested_at = {each: until for each, until in self._rested_at.items() if until > now}
        if computed > LONG_SECONDS or function.concurrency_id == CPU["concurrency_id"]:
            until = max(now, self._rested_at.get(visitor.site, 0.0)) + REST * computed
            self._rested_at[visitor.site] = until

    def _is_long(self, visitor: Visitor, function: BlockFunction) -> bool:
        if function.concurrency_id == CPU["concurrency_id"]:
            return True
        own, others = ((whose or "", str(function._id)) for whose in (visitor.owner, visitor.site))
        return self._last.get(own, self._last.get(others, 0.0)) > LONG_SECONDS
