"""Runs of one task compared on the same held-out items: metrics, paired tests, and the settings that differ."""

from core.reports.comparison.comparable import (
    MAX_RUNS,
    RunGroup,
    check_comparable,
    differing_settings,
    group_runs,
    held_out_key,
)
from core.reports.comparison.measurement import (
    Comparison,
    ComparisonProgress,
    MeasurementCache,
    PairedComparison,
    compare,
)
from core.reports.comparison.summary import (
    as_data,
    cautions,
    describe_pair,
    describe_quality,
    format_p,
    format_points,
    mean_curve,
)

__all__ = [
    "MAX_RUNS",
    "Comparison",
    "ComparisonProgress",
    "MeasurementCache",
    "PairedComparison",
    "RunGroup",
    "as_data",
    "cautions",
    "check_comparable",
    "compare",
    "describe_pair",
    "describe_quality",
    "differing_settings",
    "format_p",
    "format_points",
    "group_runs",
    "held_out_key",
    "mean_curve",
]
