"""Tests between groups of values, against tables, enumeration and simulation."""

import itertools
from statistics import fmean

import numpy as np
import pytest

from core.evaluation.group_tests import RESAMPLES, compare_groups, holm, smallest_p

A, B = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8]


def welch_t(first, second) -> tuple[float, float]:
    """Statistic and degrees of freedom, as Welch and Satterthwaite write them."""
    parts = [np.var(each, ddof=1) / len(each) for each in (first, second)]
    df = sum(parts) ** 2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (first, second), strict=True))
    return (fmean(first) - fmean(second)) / sum(parts) ** 0.5, df


def test_welch_is_the_formula_and_its_interval_has_p_005_at_its_ends():
    from scipy.stats import t

    result = compare_groups(A, B, test="welch")
    statistic, df = welch_t(A, B)
    assert result.p_value == pytest.approx(2 * t.sf(abs(statistic), df))
    for end in result.interval:
        shifted = [value - end for value in A]
        assert compare_groups(shifted, B, test="welch").p_value == pytest.approx(0.05)


def test_permutation_is_the_share_of_all_arrangements_at_least_as_far_apart():
    values, n = [*A[:4], *B[:4]], 4
    observed = abs(fmean(values[:n]) - fmean(values[n:]))
    far = 0
    for chosen in itertools.combinations(range(8), n):
        one, other = [values[i] for i in chosen], [values[i] for i in range(8) if i not in chosen]
        far += abs(fmean(one) - fmean(other)) >= observed - 1e-12
    assert compare_groups(values[:n], values[n:], test="permutation").p_value == pytest.approx(far / 70)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 5), (3, 5), (20, 20)])
def test_no_groups_are_further_apart_than_the_smallest_p_value_says(sizes):
    first, second = [float(i) for i in range(sizes[0])], [100.0 + i for i in range(sizes[1])]
    assert compare_groups(first, second, test="permutation").p_value == pytest.approx(smallest_p(*sizes))


def test_groups_that_do_not_vary():
    assert compare_groups([1, 1], [1, 1], test="welch").p_value == 1.0
    assert compare_groups([1, 1], [0, 0], test="welch").p_value is None
    assert compare_groups([1, 1, 1], [0, 0, 0], test="permutation").p_value == pytest.approx(0.1)
    with pytest.raises(ValueError, match="groups of 1 and 2 values"):
        compare_groups([1], [1, 2], test="welch")


def test_holm_multiplies_by_the_tests_that_are_left():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.02, None, 0.5]) == [pytest.approx(0.06), None, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("test", ["welch", "permutation"])
def test_equal_groups_are_called_different_in_at_most_one_of_twenty(test):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(150, 2, 4))
    called = sum(compare_groups(*map(list, pair), test=test).p_value < 0.05 for pair in draws)
    assert 0 < called <= 150 * 0.05 + 3 * (150 * 0.05 * 0.95) ** 0.5
    assert RESAMPLES >= 70  # all arrangements of four and four are counted
