"""Figures, lengths and times in sentences and tables."""

from collections.abc import Mapping, Sequence

from core.config.counting import percent
from core.evaluation.headline import HeadlineFigure

_SPACE = "\N{NO-BREAK SPACE}"
_MAX_LENGTHS = 12  # listed in a line
_HOUR, _DAY = 3_600, 86_400
_UNITS = (  # name, seconds, and the seconds above which the next unit is used
    ("s", 1, 90),
    ("min", 60, 1.5 * _HOUR),
    ("h", _HOUR, 2 * _DAY),
    ("days", _DAY, 2 * 365 * _DAY),
    ("years", 365 * _DAY, float("inf")),
)


def headline_text(figures: Sequence[HeadlineFigure]) -> str:
    """Format the figures that decide, the first first: ``exact match 75.0 %, BLEU 82.0``; a dash without any."""
    return ", ".join(f"{each.name} {headline_value(each)}" for each in figures) or "–"


def headline_value(figure: HeadlineFigure) -> str:
    """Format a figure that decides, without its name."""
    if figure.measure == "bleu":
        return f"{figure.value:.1f}"
    return f"{figure.value:.2f}" if figure.measure == "perplexity" else percent(figure.value)


def lengths_text(lengths: Mapping[int, int]) -> str:
    """Format the number of inputs by their length: ``3: 10, 4: 90``; "" if there are too many lengths for a line."""
    return (
        ", ".join(f"{length}: {count:,}" for length, count in lengths.items()) if len(lengths) <= _MAX_LENGTHS else ""
    )


def training_time(seconds: float) -> str:
    """Format the training time of a run in seconds; a dash for 0, as in imported runs."""
    return f"{seconds:.1f} s" if seconds else "–"


def duration_range(low: float, high: float) -> str:
    """Format a range of seconds in one unit, with as few digits as an estimate justifies: ``1.5–2 h``."""
    if high < 1:
        return f"less than 1{_SPACE}s"
    unit, seconds, _ = next(each for each in _UNITS if high < each[2])
    low, high = (_rounded(value / seconds, finest=1.0 if unit == "s" else 0.5) for value in (low, high))
    amount = f"{_plain(low)}–{_plain(high)}" if low < high else f"about {_plain(high)}"
    return f"{amount}{_SPACE}{unit}"


def _rounded(value: float, *, finest: float) -> float:
    """Round a positive value to a multiple of 5, 50 and so on that is at most a quarter of it; otherwise to 1 or less.

    Args:
        finest: the smallest step to round to, 1 or less. The result is at least one step.
    """
    step = next((step for step in (50_000.0, 5_000.0, 500.0, 50.0, 5.0, 1.0) if value >= 4 * step), finest)
    return step * max(1, int(value / step + 0.5))


def _plain(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")
