"""What the axes of a sweep do to its goal: how much each matters, and the mean for each pair of two axes' values."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.runs.sweeps.sweep import Value
from core.runs.sweeps.table import Row

MAX_GROUPS = 5  # of an axis with more values, into which they are divided by size
MAX_CELLS = 12  # rows or columns of a heat map


@dataclass(frozen=True)
class Bin:
    """Values of an axis that are taken together: one value, or numbers from ``low`` to ``high``."""

    label: str
    values: frozenset[Value]


@dataclass(frozen=True)
class HeatMap:
    """Means of the goal's metric over the trials that have a pair of values.

    Attributes:
        means: by row and column; None where there is no trial.
        trials: number of trials in each cell.
    """

    rows: list[str]
    columns: list[str]
    means: list[list[float | None]]
    trials: list[list[int]]


def importance(rows: Sequence[Row], axis: str) -> float | None:
    """Return the share of the variance of the trials' ranks that an axis alone explains, from 0 to 1.

    It is η² of the Kruskal-Wallis test, (H - k + 1) / (n - k), for k groups of n trials (Tomczak and Tomczak 2014),
    which corrects for what chance explains. Ranks, because a diverged trial's loss would outweigh all others.
    Interactions with other axes are not in it.

    Returns:
        None if no trial or all have the same value, or there are too few trials to tell.
    """
    measured = [row for row in rows if row.mean is not None and row.pruned is None]
    bins = bins_of([row.settings[axis] for row in measured], MAX_GROUPS)
    n, k = len(measured), len(bins)
    if k < 2 or n - k < 2:
        return None
    import numpy as np

    _, places, counts = np.unique([row.mean for row in measured], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # from 1; equal means share the mean of theirs
    total = float(((ranks - ranks.mean()) ** 2).sum())
    if not total:
        return 0.0
    groups = [ranks[[row.settings[axis] in each.values for row in measured]] for each in bins]
    between = sum(len(group) * (float(group.mean()) - float(ranks.mean())) ** 2 for group in groups)
    statistic = (n - 1) * between / total  # H; scipy.stats, which has it too, takes a second to import
    return min(1.0, max(0.0, (statistic - k + 1) / (n - k)))


def heat_map(rows: Sequence[Row], row_axis: str, column_axis: str) -> HeatMap:
    """Return the mean of the trials' means for each pair of values of two axes; pruned trials have none."""
    measured = [row for row in rows if row.mean is not None and row.pruned is None]
    down, across = (bins_of([row.settings[axis] for row in measured], MAX_CELLS) for axis in (row_axis, column_axis))
    cells = [
        [
            [
                row.mean or 0.0
                for row in measured
                if row.settings[row_axis] in one.values and row.settings[column_axis] in other.values
            ]
            for other in across
        ]
        for one in down
    ]
    return HeatMap(
        [each.label for each in down],
        [each.label for each in across],
        [[fmean(cell) if cell else None for cell in line] for line in cells],
        [[len(cell) for cell in line] for line in cells],
    )


def bins_of(values: Sequence[Value], most: int) -> list[Bin]:
    """Return one bin for each value, or at most so many with about as many numbers each; texts are never joined."""
    different = sorted(set(values), key=lambda value: (isinstance(value, str), str(type(value)), value))
    numbers = [value for value in different if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(different) <= most or len(numbers) < len(different):
        return _labeled([[value] for value in different])
    ordered = sorted(value for value in values if isinstance(value, int | float))
    parts: list[list[Value]] = []
    taken: set[Value] = set()
    for i in range(most):
        part = sorted(set(ordered[len(ordered) * i // most : len(ordered) * (i + 1) // most]) - taken)
        taken.update(part)
        if part:
            parts.append([*part])
    return _labeled(parts)


def _labeled(parts: Sequence[Sequence[Value]]) -> list[Bin]:
    """Return a bin for each part, which is sorted, with as many digits as tell the ends of all parts apart."""
    ends = {end for part in parts for end in (part[0], part[-1]) if isinstance(end, float)}
    digits = next(count for count in range(3, 18) if len({_text(end, count) for end in ends}) == len(ends))
    labels = [dict.fromkeys(_text(end, digits) for end in (part[0], part[-1])) for part in parts]
    return [Bin(" to ".join(label), frozenset(part)) for label, part in zip(labels, parts, strict=True)]


def _text(value: Value, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
