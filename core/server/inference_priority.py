"""Answers go first and one by one: meanwhile runs in training wait between two updates."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_WAIT = 0.25  # seconds of a run between two updates: however many ask, trainings go on
LONGEST_TURN = 1.0  # seconds: who has waited so long for their turn answers beside the one before, which may take long


class InferencePriority:
    """Who makes an answer, and who waits for that.

    Threads take turns at the interpreter's lock at every one of the hundreds of small operations of an answer, and lose
    more time so than they work: on two cores two answers at once come to half as many a second as one after the other,
    four to a quarter. Beside updates of runs in training it is the same; an update waits better than a person.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._answers = 0
        self._changed = threading.Condition()

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Have the right of way inside, as soon as it is one's turn."""
        with self._changed:
            self._answers += 1
        mine = self._turn.acquire(timeout=LONGEST_TURN)
        try:
            yield
        finally:
            if mine:
                self._turn.release()
            with self._changed:
                self._answers -= 1
                self._changed.notify_all()

    def wait_for_inference(self) -> None:
        """Wait until no answer is being made, for ``LONGEST_WAIT`` at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._answers, timeout=LONGEST_WAIT)
