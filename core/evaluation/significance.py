"""Two models on the same items: who wins how often, and whether that could be chance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
_Z = 1.959963984540054  # quantile of the normal distribution that leaves 2.5 % above it


@dataclass(frozen=True)
class Paired:
    """How often two models answered the same items rightly.

    Attributes:
        both_right, neither: items on which they are alike.
        wins, losses: items that only the first, and only the second, answered rightly.
    """

    both_right: int
    wins: int
    losses: int
    neither: int

    @property
    def items(self) -> int:
        """How many items there were."""
        return self.both_right + self.wins + self.losses + self.neither

    @property
    def ties(self) -> int:
        """Items on which both are right, or both wrong."""
        return self.both_right + self.neither

    @property
    def difference(self) -> float:
        """Share right of the first less that of the second, from -1 to 1."""
        return (self.wins - self.losses) / self.items

    @property
    def p_value(self) -> float:
        """Two-sided p of the exact test after McNemar 1947, Psychometrika 12, 153–157.

        Were both models equally good, each item on which they differ would be a win or a loss like the fall of a
        coin. p is the probability of a split at least this uneven: min(1, 2 Σ_{i ≤ min(wins, losses)} C(n, i) / 2ⁿ),
        where n = wins + losses. It is 1 where they never differ.
        """
        n = self.wins + self.losses
        tail = (_log_choose(n, i) - n * math.log(2) for i in range(min(self.wins, self.losses) + 1))
        return min(1.0, 2 * math.fsum(map(math.exp, tail)))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of ``difference``: Newcombe 1998, Stat. Med. 17, 2635–2650, method 10.

        It joins Wilson's intervals of the two shares and allows for their correlation, so that it has a width also
        where the models never differ, and never leaves [-1, 1].
        """
        n = self.items
        first, second = (self.both_right + self.wins) / n, (self.both_right + self.losses) / n
        low_1, high_1 = wilson_interval(self.both_right + self.wins, n)
        low_2, high_2 = wilson_interval(self.both_right + self.losses, n)
        phi = self._correlation()
        down_1, up_1, down_2, up_2 = first - low_1, high_1 - first, second - low_2, high_2 - second
        below = math.sqrt(down_1**2 - 2 * phi * down_1 * up_2 + up_2**2)
        above = math.sqrt(up_1**2 - 2 * phi * up_1 * down_2 + down_2**2)
        return self.difference - below, self.difference + above

    def swapped(self) -> "Paired":
        """Return the same with the second model first."""
        return Paired(self.both_right, self.losses, self.wins, self.neither)

    def _correlation(self) -> float:
        """Return Newcombe's φ of the two shares, corrected for continuity; 0 where a share is 0 or 1."""
        margins = math.prod(
            (
                self.both_right + self.wins,
                self.losses + self.neither,
                self.both_right + self.losses,
                self.wins + self.neither,
            )
        )
        if not margins:
            return 0.0
        excess = self.both_right * self.neither - self.wins * self.losses
        return (max(excess - self.items / 2, 0) if excess > 0 else excess) / math.sqrt(margins)


def paired(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Count the outcomes of two models on the same items, which must be in the same order.

    Raises:
        ValueError: there are no items, or not as many of one as of the other.
    """
    outcomes = [(bool(one), bool(other)) for one, other in zip(first, second, strict=True)]
    if not outcomes:
        raise ValueError("no items to compare on")
    return Paired(*(outcomes.count(which) for which in ((True, True), (True, False), (False, True), (False, False))))


def wilson_interval(right: int, items: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share: Wilson 1927, J. Am. Stat. Assoc. 22, 209–212."""
    share, z2 = right / items, _Z**2
    middle = (share + z2 / (2 * items)) / (1 + z2 / items)
    half = _Z * math.sqrt(share * (1 - share) / items + z2 / (4 * items**2)) / (1 + z2 / items)
    return max(0.0, middle - half), min(1.0, middle + half)


def _log_choose(n: int, k: int) -> float:
    """Return ln C(n, k): the number itself may have a million digits."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
