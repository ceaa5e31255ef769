"""Statistics: two models on the same items (McNemar's test, confidence intervals), and one measure over several runs.

SciPy and NumPy are imported inside the functions that need them: SciPy takes longer to load than most commands to run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import Any

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
BOOTSTRAP_RESAMPLES = 10_000


@dataclass(frozen=True)
class PairedOutcomes:
    """Contingency table of two models on the same items.

    Attributes:
        both_correct, both_wrong: items on which the models agree.
        wins, losses: items that only the first model, and only the second, answered correctly.
    """

    both_correct: int
    wins: int
    losses: int
    both_wrong: int

    @property
    def items(self) -> int:
        """Number of items."""
        return self.both_correct + self.wins + self.losses + self.both_wrong

    @property
    def ties(self) -> int:
        """Items on which both models are correct, or both wrong."""
        return self.both_correct + self.both_wrong

    @property
    def difference(self) -> float:
        """Accuracy of the first model minus accuracy of the second, from -1 to 1."""
        return (self.wins - self.losses) / self.items

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the exact McNemar test (McNemar 1947, Psychometrika 12, 153–157).

        Under the null hypothesis each item on which the models differ is a win or a loss with probability 1/2. The
        p-value is the probability of a split at least this uneven; it is 1 if the models never differ.
        """
        from scipy.special import bdtr  # scipy.stats, which has the test too, takes half a second longer to import

        return min(1.0, 2 * float(bdtr(min(self.wins, self.losses), self.wins + self.losses, 0.5)))

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """95 % confidence interval of ``difference`` (Newcombe 1998, Stat. Med. 17, 2635–2650, method 10).

        It combines the Wilson intervals of the two accuracies and accounts for their correlation. So it has a width
        even if the models never differ, and never leaves [-1, 1].
        """
        first, second = self.both_correct + self.wins, self.both_correct + self.losses
        low_1, high_1 = wilson_interval(first, self.items)
        low_2, high_2 = wilson_interval(second, self.items)
        below_1, above_1 = first / self.items - low_1, high_1 - first / self.items
        below_2, above_2 = second / self.items - low_2, high_2 - second / self.items
        phi = self._correlation()
        below = math.sqrt(below_1**2 - 2 * phi * below_1 * above_2 + above_2**2)
        above = math.sqrt(above_1**2 - 2 * phi * above_1 * below_2 + below_2**2)
        return self.difference - below, self.difference + above

    def swapped(self) -> "PairedOutcomes":
        """Return the table with the two models exchanged."""
        return PairedOutcomes(self.both_correct, self.losses, self.wins, self.both_wrong)

    def _correlation(self) -> float:
        """Return Newcombe's φ of the two accuracies, continuity-corrected; 0 if an accuracy is 0 or 1."""
        margins = math.prod(
            (
                self.both_correct + self.wins,
                self.losses + self.both_wrong,
                self.both_correct + self.losses,
                self.wins + self.both_wrong,
            )
        )
        if not margins:
            return 0.0
        excess = self.both_correct * self.both_wrong - self.wins * self.losses
        return (max(excess - self.items / 2, 0) if excess > 0 else excess) / math.sqrt(margins)


def pair_outcomes(first: Sequence[bool], second: Sequence[bool]) -> PairedOutcomes:
    """Count the outcomes of two models on the same items, given in the same order.

    Args:
        first, second: for each item, whether the model answered it correctly.

    Raises:
        ValueError: there are no items, or the two sequences differ in length.
    """
    outcomes = [(bool(one), bool(other)) for one, other in zip(first, second, strict=True)]
    if not outcomes:
        raise ValueError("no items to compare on")
    cells = ((True, True), (True, False), (False, True), (False, False))
    return PairedOutcomes(*(outcomes.count(cell) for cell in cells))


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion (Wilson 1927, J. Am. Stat. Assoc. 22, 209–212)."""
    share, z_per_root = successes / trials, _Z / math.sqrt(trials)
    center = share + z_per_root**2 / 2
    half = z_per_root * math.sqrt(share * (1 - share) + z_per_root**2 / 4)
    low, high = (center - half) / (1 + z_per_root**2), (center + half) / (1 + z_per_root**2)
    return (low if successes else 0.0), (high if successes < trials else 1.0)  # exact there, without rounding


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a measure over ``n`` runs that differ only in their seed.

    Attributes:
        sd: sample standard deviation (denominator n - 1); None for a single run.
    """

    n: int
    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Compute mean and standard deviation; raise ValueError if there are no values."""
        if not values:
            raise ValueError("no values to take the mean of")
        n, mean = len(values), fmean(values)
        if n == 1:
            return cls(n, mean, None)
        squares = math.fsum((value - mean) ** 2 for value in values)  # ``statistics.stdev`` takes 50 times as long
        return cls(n, mean, math.sqrt(squares / (n - 1)))


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the mean by Student's t; None for fewer than two values.

    It assumes that the values are drawn independently from a normal distribution, such as runs with other seeds.
    """
    from scipy.special import stdtrit

    spread = Spread.of(values)
    if spread.sd is None:
        return None
    half = float(stdtrit(spread.n - 1, (1 + CONFIDENCE) / 2)) * spread.sd / math.sqrt(spread.n)
    return spread.mean - half, spread.mean + half


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap interval of the mean; None for fewer than two values.

    It assumes no distribution and never leaves the range of the values; with fewer than about ten it is too narrow.
    """
    import numpy as np

    if len(values) < 2:
        return None
    means = np.asarray(values, dtype=float)[_draws(len(values), seed)].mean(axis=1)
    low, high = np.quantile(means, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return float(low), float(high)


@lru_cache(4)  # the rows of a table have as many values each
def _draws(n: int, seed: int) -> Any:
    """Return the indices of all resamples of ``n`` values: (BOOTSTRAP_RESAMPLES, n) int64."""
    import numpy as np

    return np.random.default_rng(seed).integers(n, size=(BOOTSTRAP_RESAMPLES, n))
