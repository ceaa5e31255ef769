"""Tests whether groups of runs differ in a measure: Welch's t, permutation, and Holm's correction for many tests.

SciPy is imported inside the functions that need it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from core.evaluation.significance import CONFIDENCE

RESAMPLES = 10_000  # random permutations, where there are more than so many
Test = Literal["welch", "permutation"]
Measure = Literal["loss", "free_running_loss", "token_accuracy", "exact_match", "bleu", "chrf"]
"""What groups are compared by."""


@dataclass(frozen=True)
class GroupTest:
    """Two groups of values compared.

    Attributes:
        difference: mean of the first group minus mean of the second.
        interval: 95 % confidence interval of it by Welch's t; None if neither group varies, or a value is not finite.
        p_value: two-sided; None where Welch's t is not defined: neither group varies, and their means differ; None for
            both tests if a value is not finite.
    """

    difference: float
    interval: tuple[float, float] | None
    p_value: float | None


def compare_groups(first: Sequence[float], second: Sequence[float], *, test: Test) -> GroupTest:
    """Test whether two groups of independent values have the same mean.

    "welch" (Welch 1947, Biometrika 34, 28–35) assumes normal distributions, whose variances may differ. "permutation"
    (Fisher 1935, The Design of Experiments) assumes that under the null hypothesis both groups have the same
    distribution; its p-value cannot be below 2 / C(n + m, n) for groups of equal size.

    Raises:
        ValueError: a group has fewer than two values.
    """
    if min(len(first), len(second)) < 2:
        raise ValueError(f"groups of {len(first)} and {len(second)} values: each needs at least 2")
    difference = fmean(first) - fmean(second)
    if not math.isfinite(difference):  # one such value is enough
        return GroupTest(difference, None, None)
    if len({*first}) == len({*second}) == 1:  # SciPy would divide by zero
        p_value = 1.0 if difference == 0 else None
        return GroupTest(difference, None, p_value if test == "welch" else _permutation(first, second))
    from scipy.stats import ttest_ind

    result: Any = ttest_ind(first, second, equal_var=False)
    interval = result.confidence_interval(CONFIDENCE)
    p_value = float(result.pvalue) if test == "welch" else _permutation(first, second)
    return GroupTest(difference, (float(interval.low), float(interval.high)), p_value)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for their number (Holm 1979, Scand. J. Stat. 6, 65–70); None is counted and stays None.

    If all adjusted values below 0.05 are called significant, the probability of even one false call is at most 5 %.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[i] = largest
    return adjusted


def smallest_p(first: int, second: int) -> float:
    """Return the smallest p-value that the permutation test can have for groups of these sizes."""
    arrangements = math.comb(first + second, first)
    if arrangements > RESAMPLES:
        return 1 / (RESAMPLES + 1)
    return (2 if first == second else 1) / arrangements


def _permutation(first: Sequence[float], second: Sequence[float]) -> float:
    import numpy as np
    from scipy.stats import permutation_test

    def statistic(one: Any, other: Any, axis: int) -> Any:
        return abs(np.mean(one, axis=axis) - np.mean(other, axis=axis))

    result = permutation_test(
        (np.asarray(first, dtype=float), np.asarray(second, dtype=float)),
        statistic,
        alternative="greater",
        vectorized=True,
        n_resamples=RESAMPLES,  # all permutations, if there are no more
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)
