"""Answers go first: between two updates, runs in training wait while somebody's answer is being made."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_WAIT = 0.05  # seconds between two updates: however many ask, trainings go on


class RightOfWay:
    """Who makes an answer, and who waits for that.

    The small operations of an answer and of an update in another thread take turns at the interpreter's lock, so that
    beside two trainings an answer takes three times as long as alone. An update waits better than a person.
    """

    def __init__(self) -> None:
        self._answers = 0
        self._changed = threading.Condition()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Have the right of way inside."""
        with self._changed:
            self._answers += 1
        try:
            yield
        finally:
            with self._changed:
                self._answers -= 1
                self._changed.notify_all()

    def give_way(self) -> None:
        """Wait until no answer is being made, for ``LONGEST_WAIT`` at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._answers, timeout=LONGEST_WAIT)
