"""Runs of one task compared on the same held-out items: who wins how often, by how much, and what differs in them."""

from core.reports.comparison.comparable import (
    MAX_RUNS,
    RunGroup,
    check_comparable,
    groups_of,
    held_out_key,
    settings_that_differ,
)
from core.reports.comparison.measurement import (
    Comparison,
    ComparisonProgress,
    MeasurementCache,
    PairedComparison,
    band_over,
    compare,
)
from core.reports.comparison.summary import as_data, cautions, duel_in_words, p_in_words, points_in_words

__all__ = [
    "MAX_RUNS",
    "Comparison",
    "PairedComparison",
    "RunGroup",
    "MeasurementCache",
    "ComparisonProgress",
    "as_data",
    "band_over",
    "cautions",
    "check_comparable",
    "compare",
    "duel_in_words",
    "groups_of",
    "held_out_key",
    "p_in_words",
    "points_in_words",
    "settings_that_differ",
]
