"""Queue of runs that wait for a free worker, fair between owners."""

from collections import Counter
from collections.abc import Mapping


class RunQueue:
    """Names of queued runs with their owners; None counts as one owner.

    Runs of one owner start in order of arrival. Between owners, a run queues behind every run that has fewer runs of
    its own owner training or ahead of it, so an owner who queues ten runs does not keep the others waiting.

    Args:
        max_per_owner: how many runs of one owner may train at the same time; None is no limit.
    """

    def __init__(self, *, max_per_owner: int | None = None) -> None:
        self._max_per_owner = max_per_owner
        self._owners: dict[str, str | None] = {}  # by run, in order of arrival

    def __contains__(self, name: str) -> bool:
        return name in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, name: str, owner: str | None) -> None:
        """Append a run."""
        self._owners[name] = owner

    def remove(self, name: str) -> None:
        """Remove a run."""
        del self._owners[name]

    def order(self, training: Mapping[str | None, int]) -> list[str]:
        """Return the names of all queued runs, the next one first.

        Args:
            training: number of runs in training by owner.
        """
        return [name for _, name in self._ranked(training)]

    def position(self, name: str, training: Mapping[str | None, int]) -> int:
        """Return a run's position in the queue, from 1."""
        return self.order(training).index(name) + 1

    def next(self, training: Mapping[str | None, int]) -> str | None:
        """Return the run that may start now, or None if there is none."""
        for num_before, name in self._ranked(training):
            if self._max_per_owner is None or num_before < self._max_per_owner:
                return name
        return None

    def _ranked(self, training: Mapping[str | None, int]) -> list[tuple[int, str]]:
        """Return (number of the owner's runs before this one, name), sorted; the sort is stable."""
        num_before = Counter(training)
        ranked = []
        for name, owner in self._owners.items():
            ranked.append((num_before[owner], name))
            num_before[owner] += 1
        return sorted(ranked, key=lambda entry: entry[0])
