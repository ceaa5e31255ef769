"""The trials of a sweep as points: the goal's metric against a number of the preset."""

from typing import Any

from matplotlib.figure import Figure

from core.config.counting import counted
from core.reports.plotting import TRAIN_COLOR, VALIDATION_COLOR
from core.runs.sweeps.sweep import Range
from core.runs.sweeps.table import Row, SweepTable
from core.storage.error_messages import shortened
from core.storage.errors import InputError


def sweep_figure(table: SweepTable, *, key: str, level: float | None = None) -> Figure:
    """Draw complete trials: the mean over seeds as a point, and a line from the smallest to the largest value.

    Args:
        key: the axis to draw them along; its values must be numbers.
        level: of the metric, drawn as a dashed line; the title then counts the trials with a mean that reaches it.

    Raises:
        InputError: the key is not an axis with numbers, or no trial is complete.
    """
    sweep = table.file.sweep
    axis = sweep.axes.get(key)
    if axis is None:
        raise InputError(f"--by={shortened(key)} is not an axis of the sweep; its axes are {', '.join(sweep.axes)}")
    rows = [row for row in table.rows if row.is_complete and row.pruned is None]
    if not rows:
        raise InputError(f"sweep={sweep.name!r}: no trial has all its {len(table.file.seeds)} seeds done yet")
    if not all(_is_number(row.settings[key]) for row in rows):
        raise InputError(f"--by={shortened(key)} has values that are not numbers")
    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    at: list[Any] = [row.settings[key] for row in rows]
    means: list[Any] = [row.mean for row in rows]
    low = [min(row.values) for row in rows]
    high = [max(row.values) for row in rows]
    axes.vlines(at, low, high, color=TRAIN_COLOR, alpha=0.25, linewidth=1)
    axes.plot(at, means, "o", color=TRAIN_COLOR, markersize=4, alpha=0.7)
    if isinstance(axis, Range) and axis.log:
        axes.set_xscale("log")
    if level is not None:
        axes.axhline(level, color=VALIDATION_COLOR, linestyle="--", linewidth=1)
    axes.set_xlabel(key)
    axes.set_ylabel(f"{sweep.goal.metric.replace('_', ' ')}, mean of {counted(len(table.file.seeds), 'seed')}")
    axes.set_title(figure_caption(table, rows, level), fontsize=9, parse_math=False)
    return figure


def figure_caption(table: SweepTable, rows: list[Row], level: float | None) -> str:
    """Return how many trials are drawn and pruned, and how many reach a level."""
    pruned = sum(row.pruned is not None for row in table.rows)
    text = f"{table.file.sweep.name}: {counted(len(rows), 'trial')}" + (f", {pruned} more pruned" if pruned else "")
    if level is None:
        return text
    sign = 1 if table.file.sweep.goal.direction == "maximize" else -1
    reaching = sum(row.mean is not None and sign * row.mean >= sign * level for row in rows)
    return f"{text}; {reaching} reach {level:g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
