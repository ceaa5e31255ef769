"""What axes do to the goal: importance by rank, and means for pairs of values."""

import pytest

from core.runs.sweeps.effects import bins_of, heat_map, importance
from core.runs.sweeps.table import Row


def row(mean: float | None, *, pruned: int | None = None, **settings) -> Row:
    values = () if mean is None else (mean,)
    figures = {"mean": mean, "sd": None, "seconds": 1.0, "parameters": 1}
    return Row("t", settings, (), values, 1, 0, pruned=pruned, stopped=False, training=(), **figures)


def test_an_axis_that_decides_everything_has_all_the_importance_and_one_that_does_nothing_none():
    rows = [row(10.0**a, a=a, b=b) for a in range(4) for b in range(3)]  # 1 to 1000: ranks, not sizes
    assert importance(rows, "a") == pytest.approx(1.0)
    assert importance(rows, "b") == 0.0


def test_importance_is_the_eta_squared_of_the_kruskal_wallis_test():
    rows = [row(mean, a=a) for a, mean in ((0, 1.0), (0, 2.0), (0, 4.0), (1, 3.0), (1, 5.0), (1, 6.0))]
    # ranks 1 2 4 and 3 5 6: H = 12 / (6 · 7) · (7² + 14²) / 3 - 3 · 7 = 7 / 3; (7 / 3 - 2 + 1) / (6 - 2) = 1 / 3
    assert importance(rows, "a") == pytest.approx(1 / 3)


def test_importance_has_the_statistic_of_scipy_with_ties_too():
    from scipy.stats import kruskal

    groups = [[1.0, 2.0, 2.0, 5.0], [2.0, 3.0, 7.0], [7.0, 8.0, 9.0, 9.0, 1.0]]
    rows = [row(mean, a=a) for a, group in enumerate(groups) for mean in group]
    expected = (kruskal(*groups).statistic - 3 + 1) / (12 - 3)
    assert importance(rows, "a") == pytest.approx(expected)
    assert 0 < expected < 1


def test_importance_needs_more_trials_than_values_and_leaves_out_the_pruned():
    assert importance([row(float(a), a=a) for a in range(3)], "a") is None
    assert importance([row(float(i), a=1) for i in range(9)], "a") is None
    assert importance([row(1.0, a=i % 2) for i in range(8)], "a") == 0.0
    known = [row(float(a), a=a % 2) for a in range(8)]
    assert importance([*known, row(99.0, a=0, pruned=1), row(None, a=1)], "a") == importance(known, "a")


def test_a_heat_map_has_the_mean_of_each_pair_and_nothing_where_there_is_no_trial():
    found = heat_map([row(1.0, a="x", b=True), row(3.0, a="x", b=True), row(5.0, a="y", b=False)], "a", "b")
    assert (found.rows, found.columns) == (["x", "y"], ["False", "True"])
    assert found.means == [[None, 2.0], [5.0, None]]
    assert found.trials == [[0, 2], [1, 0]]


def test_many_numbers_are_put_into_bins_of_about_as_many_trials():
    bins = bins_of([i / 10 for i in range(100)], 5)
    assert [len(each.values) for each in bins] == [20] * 5
    assert bins[0].label == "0 to 1.9"
    assert set().union(*(each.values for each in bins)) == {i / 10 for i in range(100)}
    assert [each.label for each in bins_of([1, 1, 1, 1, 2, 3, 4], 3)] == ["1", "2 to 4"]
    assert [each.label for each in bins_of([0.0123456, 0.0123457, 0.5], 5)] == ["0.0123456", "0.0123457", "0.5"]
    assert [each.label for each in bins_of([0.10001, 0.10002, 0.10003, 0.10004], 2)] == [
        "0.10001 to 0.10002",
        "0.10003 to 0.10004",
    ]
    assert len(bins_of([f"word {i}" for i in range(30)], 5)) == 30
