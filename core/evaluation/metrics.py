"""Metrics of plugins: functions of output texts and reference texts, measured with every evaluation."""

import math
import re
from collections.abc import Callable, Sequence

from core.storage.errors import LabError

METRICS: dict[str, Callable[[list[str], list[str]], float]] = {}
"""The metrics by name; ``core.plugins.metric`` registers them."""
METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def measure_metrics(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return every metric of some outputs, by its name; one that is not finite is left out, since it has no value.

    Args:
        outputs: what a model answered, as text.
        references: the correct answer to each.

    Raises:
        LabError: a metric fails or returns no number.
    """
    measured = {}
    for name, metric in METRICS.items():
        try:
            value = float(metric(list(outputs), list(references)))
        except Exception as error:
            raise LabError(f"metric={name!r} failed: {type(error).__name__}: {error}") from error
        if math.isfinite(value):
            measured[name] = value
    return measured
