"""Ctrl+C, or *Interrupt* in a notebook, held back until what runs can be left."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Iterator[Callable[[], None]]:
    """Raise the KeyboardInterrupt of Ctrl+C at the end of the block; a second Ctrl+C raises it immediately.

    Without effect in a thread, to which Python gives no signals, inside another such block, or where the program
    handles Ctrl+C itself.

    Yields:
        A function that raises the KeyboardInterrupt now, if Ctrl+C was pressed: call it where the block can be left.
    """
    came: list[int] = []

    def raise_if_pressed() -> None:
        if came:
            raise KeyboardInterrupt

    python_does = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not python_does:
        yield raise_if_pressed
        return

    def hold(number: int, _: FrameType | None) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, python_does)

    signal.signal(signal.SIGINT, hold)
    try:
        yield raise_if_pressed
    finally:
        signal.signal(signal.SIGINT, python_does)
        if not isinstance(sys.exception(), KeyboardInterrupt):
            raise_if_pressed()
