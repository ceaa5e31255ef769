"""Queue of runs that wait for a free worker, fair between owners, and between pools of owners."""

from collections import Counter
from collections.abc import Mapping

NO_POOL = ""


class RunQueue:
    """Names of queued runs with their owners and pools; None counts as one owner.

    Runs of one owner start in order of arrival. Between owners, a run queues behind every run that has fewer runs of
    its own owner training or ahead of it, so an owner who queues ten runs does not keep the others waiting. Pools take
    turns in the same way: a class of forty is one pool, and those outside of classes are another.

    Args:
        max_per_owner: how many runs of one owner may train at the same time; None is no limit.
    """

    def __init__(self, *, max_per_owner: int | None = None) -> None:
        self._max_per_owner = max_per_owner
        self._owners: dict[str, str | None] = {}  # by run, in order of arrival
        self._pools: dict[str, str] = {}  # by run

    def __contains__(self, name: str) -> bool:
        return name in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, name: str, owner: str | None, pool: str = NO_POOL) -> None:
        """Append a run."""
        self._owners[name], self._pools[name] = owner, pool

    def remove(self, name: str) -> None:
        """Remove a run."""
        del self._owners[name], self._pools[name]

    def order(self, training: Mapping[str | None, int], pools: Mapping[str, int] | None = None) -> list[str]:
        """Return the names of all queued runs, the next one first.

        Args:
            training: number of runs in training by owner.
            pools: number of runs in training by pool.
        """
        return [name for _, name in self._ranked(training, pools or {})]

    def position(self, name: str, training: Mapping[str | None, int], pools: Mapping[str, int] | None = None) -> int:
        """Return a run's position in the queue, from 1."""
        return self.order(training, pools).index(name) + 1

    def next(self, training: Mapping[str | None, int], pools: Mapping[str, int] | None = None) -> str | None:
        """Return the run that may start now, or None if there is none."""
        for num_before, name in self._ranked(training, pools or {}):
            if self._max_per_owner is None or num_before < self._max_per_owner:
                return name
        return None

    def _ranked(self, training: Mapping[str | None, int], pools: Mapping[str, int]) -> list[tuple[int, str]]:
        """Return (number of the owner's runs before this one, name), sorted; both sorts are stable."""
        num_before = Counter(training)
        ranked = []
        for name, owner in self._owners.items():
            ranked.append((num_before[owner], name))
            num_before[owner] += 1
        ranked.sort(key=lambda entry: entry[0])
        turns, of_pool = [], Counter(pools)
        for entry in ranked:
            pool = self._pools[entry[1]]
            turns.append((of_pool[pool], entry))
            of_pool[pool] += 1
        return [entry for _, entry in sorted(turns, key=lambda turn: turn[0])]
