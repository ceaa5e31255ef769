"""Thin a long series: keep the rows with extreme values and the last row of each group of consecutive steps.

A row is a tuple that starts with its step; rows are in step order, one per step. Thinning thinned rows, with the same
or a wider group, gives what thinning all rows gives, because widths are powers of two and groups start at their
multiples.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

Row = tuple[Any, ...]
Extreme = tuple[Callable[..., Row], int]  # min or max, and the index of its column
step_of = itemgetter(0)


def group_width(rows: Sequence[Row], max_groups: int) -> int:
    """Return the smallest power of two, in steps, that divides the rows into at most ``max_groups`` groups."""
    width = 1
    while rows and step_of(rows[-1]) // width - step_of(rows[0]) // width >= max_groups:
        width *= 2
    return width


def group_start(rows: Sequence[Row], step: int, width: int) -> int:
    """Return the index of the first row that is not before the group of ``step``."""
    return bisect_left(rows, step // width * width, key=step_of)


def holds_all(width: int, extremes: Sequence[Extreme]) -> bool:
    """Return whether groups have no more steps than thinning keeps, so that thinning drops no rows."""
    return width <= len(extremes) + 1


def thin(rows: Sequence[Row], width: int, extremes: Sequence[Extreme], *, keep_first: bool = True) -> list[Row]:
    """Return the rows with extreme values and the last row of every group of ``width`` steps, in step order.

    Of equal values the earliest is kept; NaN is never extreme. If ``holds_all``, all rows are returned.

    Args:
        rows: the rows of whole groups.
        width: steps in a group, a power of two; groups start at its multiples.
        extremes: the rows of a group to keep, besides its last row.
        keep_first: whether to always keep the first row; needed if it is the first of the series.
    """
    if holds_all(width, extremes):
        return list(rows)
    pickers = [_picker(rows, *extreme) for extreme in extremes]
    kept: list[Row] = []
    start = 0
    while start < len(rows):
        next_group = (step_of(rows[start]) // width + 1) * width
        end = bisect_left(rows, next_group, lo=start, hi=min(len(rows), start + width), key=step_of)
        group = rows[start:end]
        taken = [group[-1], *(pick(group) for pick in pickers)]
        if keep_first and start == 0:
            taken.append(group[0])
        kept += sorted({step_of(row): row for row in taken}.values(), key=step_of)
        start = end
    return kept


def _picker(rows: Sequence[Row], pick: Callable[..., Row], column: int) -> Callable[[Sequence[Row]], Row]:
    """Return the function that selects the extreme row of a group of ``rows``."""
    value = itemgetter(column)
    # Checked once for all groups: per group, it would take as long as finding the extreme.
    if not math.isnan(sum(map(value, rows))):
        return partial(pick, key=value)
    return lambda group: pick([row for row in group if not math.isnan(value(row))] or group, key=value)
