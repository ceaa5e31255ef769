"""McNemar's test, Newcombe's and Wilson's intervals: published values, closed forms, symmetry; mean and deviation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.significance import PairedOutcomes, Spread, pair_outcomes, wilson_interval

# Airway hyper-responsiveness before and after stem cell transplantation (Bentur et al. 2009), and complete response
# before and after consolidation therapy (Cavo et al. 2012), as in Fagerland, Lydersen and Laake 2013 (BMC Med. Res.
# Methodol. 13:91) and in the tests of their R package contingencytables.
BENTUR = PairedOutcomes(both_correct=1, wins=1, losses=7, both_wrong=12)
CAVO = PairedOutcomes(both_correct=59, wins=6, losses=16, both_wrong=80)


@pytest.mark.parametrize(("counts", "p_value"), [(BENTUR, 0.0703125), (CAVO, 0.052479)])
def test_mcnemar_p_values_match_published_ones(counts, p_value):
    assert counts.p_value == pytest.approx(p_value, abs=5e-7)


def test_newcombe_intervals_match_published_ones():
    assert CAVO.difference == pytest.approx(-0.0621, abs=5e-5)
    assert CAVO.confidence_interval == pytest.approx((-0.1186, -0.0046), abs=5e-5)


@pytest.mark.parametrize(("wins", "losses"), [(0, 1), (3, 9), (10, 10), (2, 40), (150, 210)])
def test_p_value_is_the_binomial_probability_of_a_split_as_uneven(wins, losses):
    n = wins + losses
    uneven = sum(math.comb(n, heads) for heads in range(n + 1) if abs(2 * heads - n) >= abs(wins - losses))
    assert PairedOutcomes(5, wins, losses, 5).p_value == pytest.approx(uneven / 2**n, rel=1e-9)


def test_p_value_of_a_million_items():
    assert PairedOutcomes(0, 500_300, 499_700, 0).p_value == pytest.approx(0.5485, abs=1e-3)  # the normal approximation
    assert PairedOutcomes(0, 1_000_000, 0, 0).p_value == 0.0


def test_outcomes_are_counted_per_item():
    first, second = [True, True, True, False, False], [True, False, False, True, False]
    assert pair_outcomes(first, second) == PairedOutcomes(both_correct=1, wins=2, losses=1, both_wrong=1)
    assert (pair_outcomes(first, second).items, pair_outcomes(first, second).ties) == (5, 2)
    assert pair_outcomes(first, second).difference == pytest.approx(0.2)


@pytest.mark.parametrize(("first", "second", "reason"), [([], [], "no items"), ([True], [True, False], "longer")])
def test_unpaired_or_no_items_are_an_error(first, second, reason):
    with pytest.raises(ValueError, match=reason):
        pair_outcomes(first, second)


outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@given(outcomes)
def test_swapping_the_models_swaps_wins_and_losses(pairs):
    first, second = zip(*pairs, strict=True)
    one, other = pair_outcomes(first, second), pair_outcomes(second, first)
    assert other == one.swapped()
    assert (other.wins, other.losses, other.ties) == (one.losses, one.wins, one.ties)
    assert other.p_value == one.p_value
    assert other.difference == -one.difference
    assert other.confidence_interval == pytest.approx((-one.confidence_interval[1], -one.confidence_interval[0]))


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_model_ties_with_itself(correct):
    itself = pair_outcomes(correct, correct)
    assert (itself.wins, itself.losses, itself.ties) == (0, 0, len(correct))
    assert itself.p_value == 1.0
    assert itself.confidence_interval[0] <= 0 <= itself.confidence_interval[1]


@given(outcomes)
def test_the_interval_contains_the_difference_and_stays_in_bounds(pairs):
    counts = pair_outcomes(*zip(*pairs, strict=True))
    low, high = counts.confidence_interval
    assert -1 - 1e-12 <= low <= counts.difference <= high <= 1 + 1e-12
    assert 0 < counts.p_value <= 1


def test_wilson_intervals_match_published_ones():
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998, table I
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_spread_of_known_values():
    spread = Spread.of([2, 4, 4, 4, 5, 5, 7, 9])
    assert (spread.mean, spread.n) == (5, 8)
    assert spread.sd == pytest.approx((32 / 7) ** 0.5)
    assert Spread.of([0.5]).sd is None
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9), st.floats(-5, 5))
def test_a_shift_changes_the_mean_and_not_the_deviation(values, shift):
    before, after = Spread.of(values), Spread.of([value + shift for value in values])
    assert after.mean == pytest.approx(before.mean + shift, abs=1e-9)
    assert after.sd == pytest.approx(before.sd, abs=1e-6)
