"""Fewer rows of a long series: of every group of consecutive steps, the rows with the extreme values and the last one.

A row is a tuple that starts with its step; rows are in step order, one a step. Thinning thinned rows, with the same or
a wider group, gives what thinning all rows gives, because widths are powers of two and groups start at their multiples.
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
    """Return the smallest power of two such that the rows fall into at most ``max_groups`` groups of so many steps."""
    width = 1
    while rows and step_of(rows[-1]) // width - step_of(rows[0]) // width >= max_groups:
        width *= 2
    return width


def group_start(rows: Sequence[Row], step: int, width: int) -> int:
    """Return the index of the first row that is not before the group of ``step``."""
    return bisect_left(rows, step // width * width, key=step_of)


def holds_all(width: int, extremes: Sequence[Extreme]) -> bool:
    """Return whether groups have no more steps than rows are taken of each, so that thinning leaves out none."""
    return width <= len(extremes) + 1


def thin(rows: Sequence[Row], width: int, extremes: Sequence[Extreme], *, keep_first: bool = True) -> list[Row]:
    """Return of every group of ``width`` steps the rows with the extreme values and the last one, in step order.

    The earliest of equal values is taken; NaN is no extreme value. Where ``holds_all``, all rows are returned.

    Args:
        rows: the rows of whole groups.
        width: steps in a group, a power of two; groups start at its multiples.
        extremes: the rows to take of a group, besides its last one.
        keep_first: whether the first row is taken in any case, as it must be if it is the first of the series.
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
    """Return what picks the extreme row of a group of ``rows``."""
    value = itemgetter(column)
    # Looked for once for all groups: in each it takes as long again as the extreme.
    if not math.isnan(sum(map(value, rows))):
        return partial(pick, key=value)
    return lambda group: pick([row for row in group if not math.isnan(value(row))] or group, key=value)
