"""Ctrl+C waits for the end of a block, or for the place where the block asks; pressed twice, it does not."""

import signal
import threading
from collections.abc import Callable

import pytest

from core.storage.interrupts import interrupts_held

pytestmark = pytest.mark.usefixtures("heeds_ctrl_c")


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def held(*calls: Callable[[], object], asking: bool = False) -> list[int]:
    """Make calls in such a block, asking after each or not; return the numbers of those that were made."""
    made = []
    with pytest.raises(KeyboardInterrupt) as raised:
        _held(calls, made, asking=asking)
    assert raised.value.__context__ is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return made


def _held(calls: tuple[Callable[[], object], ...], made: list[int], *, asking: bool) -> None:
    with interrupts_held() as raise_if_pressed:
        for number, call in enumerate(calls, start=1):
            call()
            made.append(number)
            if asking:
                raise_if_pressed()


def nothing() -> None:
    pass


def test_ctrl_c_is_raised_at_the_end_of_the_block():
    assert held(press_ctrl_c, nothing) == [1, 2]


def test_ctrl_c_is_raised_where_the_block_asks():
    assert held(nothing, press_ctrl_c, nothing, asking=True) == [1, 2]


def test_a_second_ctrl_c_does_not_wait():
    assert held(press_ctrl_c, press_ctrl_c, nothing) == [1]


def test_of_two_blocks_the_outer_one_holds_it():
    assert held(lambda: _held((press_ctrl_c,), [], asking=False), nothing) == [1, 2]


def test_an_exception_of_the_block_does_not_hide_that_it_was_pressed():
    with pytest.raises(KeyboardInterrupt) as raised:
        _held((press_ctrl_c, lambda: next(iter(()))), [], asking=False)
    assert isinstance(raised.value.__context__, StopIteration)


def test_a_thread_and_a_program_with_a_handler_of_its_own_are_left_alone():
    handlers = []

    def enter() -> None:
        _held((lambda: handlers.append(signal.getsignal(signal.SIGINT)),), [], asking=True)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    enter()
    assert handlers == [signal.default_int_handler, signal.SIG_IGN]
