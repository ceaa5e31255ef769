"""Metrics of plugins: functions of output texts and reference texts, measured with every evaluation."""

import inspect
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from core.storage.error_messages import place_in, shown
from core.storage.errors import LabError

METRICS: dict[str, Callable[[list[str], list[str]], float]] = {}
"""The metrics by name; ``core.plugins.metric`` registers them."""
METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class MetricError(LabError):
    """A metric of a plugin fails or returns no number."""

    exit_code = 1


def measure_metrics(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return every metric of some outputs, by its name; one that is not finite is left out, since it has no value.

    Args:
        outputs: what a model answered, as text.
        references: the correct answer to each.

    Raises:
        MetricError: a metric fails or returns no number.
    """
    measured = {}
    for name, metric in METRICS.items():
        try:
            value = float(metric(list(outputs), list(references)))
        except Exception as error:
            raise MetricError(f"metric={name!r} failed{_place(metric, error)}: {shown(error)}") from error
        if math.isfinite(value):
            measured[name] = value
    return measured


def _place(metric: Callable, error: Exception) -> str:
    """Return where a metric of Python code failed, as ", mine.py line 3"; "" if it did not begin."""
    file = inspect.getsourcefile(metric) if inspect.isfunction(metric) else None
    place = place_in(Path(file), error) if file else ""
    return f", {Path(str(file)).name} {place}" if place.startswith("line ") else ""
