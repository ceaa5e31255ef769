"""Who is next: runs that wait for a free place, their owners taking turns."""

from collections import Counter
from collections.abc import Mapping


class RunQueue:
    """Names of runs that wait, and whose they are; None is an owner like any other.

    First come, first served among the runs of one owner. Between owners: a run goes behind every run that has fewer of
    its own owner's in training or waiting before it, so that one who queues ten does not keep the others waiting.

    Args:
        most_each: how many runs of one owner may train at once.
    """

    def __init__(self, *, most_each: int | None = None) -> None:
        self._most_each = most_each
        self._owners: dict[str, str | None] = {}  # in the order of arrival

    def __contains__(self, name: str) -> bool:
        return name in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, name: str, owner: str | None) -> None:
        """Let a run wait."""
        self._owners[name] = owner

    def remove(self, name: str) -> None:
        """Let a run wait no more."""
        del self._owners[name]

    def order(self, training: Mapping[str | None, int]) -> list[str]:
        """Return the names of all that wait, the next one first.

        Args:
            training: how many runs each owner has in training.
        """
        return [name for _, name in self._turns(training)]

    def position(self, name: str, training: Mapping[str | None, int]) -> int:
        """Return a run's place, from 1."""
        return self.order(training).index(name) + 1

    def next(self, training: Mapping[str | None, int]) -> str | None:
        """Return the run that may start now, or None if there is none."""
        for ahead, name in self._turns(training):
            if self._most_each is None or ahead < self._most_each:
                return name
        return None

    def _turns(self, training: Mapping[str | None, int]) -> list[tuple[int, str]]:
        """Return (how many of its owner's are before it, name), the next one first; Python's sort is stable."""
        before = Counter(training)
        turns = []
        for name, owner in self._owners.items():
            turns.append((before[owner], name))
            before[owner] += 1
        return sorted(turns, key=lambda turn: turn[0])
