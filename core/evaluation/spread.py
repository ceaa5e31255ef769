"""Mean and spread of a figure over several trainings."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Spread:
    """A figure over ``n`` runs that differ in nothing but their seed.

    Attributes:
        sd: standard deviation of the sample, with n - 1 below the line; None of a single run.
    """

    n: int
    mean: float
    sd: float | None


def spread_of(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation of some values; ValueError if there are none."""
    if not values:
        raise ValueError("no values to take the mean of")
    return Spread(len(values), fmean(values), stdev(values) if len(values) > 1 else None)
