"""Stop a command in order on Ctrl+C or SIGTERM, so that its results are saved."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call ``stop`` on Ctrl+C, or on SIGTERM, which torchrun and job queues send instead, inside the block.

    Yields:
        The signals that have arrived, in a list that grows.
    """
    arrived: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        arrived.append(number)
        stop()

    previous = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Exit with code 143 on SIGTERM inside the block, so that temporary files are deleted; by default, they stay."""

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
