"""N-grams: probabilities worked out by hand, of any data a distribution, and better the more they know."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.ngram import MAX_ORDER, NGram
from core.text.vocab import BOS_ID, EOS_ID

A, B, C = 3, 4, 5
SEQUENCES = st.lists(st.lists(st.sampled_from([A, B, C]), max_size=6), max_size=8)


@pytest.fixture
def bigrams() -> NGram:
    """Of ``a b`` and ``a``: the bigrams ^a twice, ab, b$ and a$ once each, so 0.6 is taken from each count."""
    return NGram([[A, B], [A]], order=2, num_tokens=3)


def test_single_tokens_are_counted_by_what_they_stand_behind():
    # a behind the beginning, b behind a, the end behind both: 1, 1 and 2 of 4; 2 / (2 + 2 · 1) is taken from each.
    bigrams = NGram([[A, B], [A]], order=2, num_tokens=3)
    assert bigrams.probability(A, [C]) == pytest.approx(0.5 / 4 + 0.5 * 3 / 4 / 3)
    assert bigrams.probability(EOS_ID, [C]) == pytest.approx(1.5 / 4 + 0.5 * 3 / 4 / 3)


@pytest.mark.parametrize(
    ("token", "history", "probability"),
    [
        (A, [], 1.4 / 2 + 0.6 * 1 / 2 * 0.25),
        (B, [A], 0.4 / 2 + 0.6 * 2 / 2 * 0.25),
        (EOS_ID, [A], 0.4 / 2 + 0.6 * 2 / 2 * 0.5),
        (A, [A], 0.6 * 2 / 2 * 0.25),
        (EOS_ID, [A, B], 0.4 / 1 + 0.6 * 1 / 1 * 0.5),
        (B, [A, B], 0.6 * 1 / 1 * 0.25),
    ],
)
def test_pairs_are_discounted_and_filled_up_from_single_tokens(bigrams, token, history, probability):
    assert bigrams.probability(token, history) == pytest.approx(probability)


def test_the_loss_counts_the_end(bigrams):
    expected = -(math.log(0.775) + math.log(0.35) + math.log(0.7)) / 3
    assert bigrams.loss([[A, B]]) == pytest.approx(expected)


def test_the_first_order_counts_how_often_a_token_stands():
    # a three times, b once, the end twice: n1 = n2 = 1, so 1 / 3 is taken from each.
    unigrams = NGram([[A, A], [A, B]], order=1, num_tokens=3)
    assert unigrams.probability(A, []) == pytest.approx((3 - 1 / 3) / 6 + 1 / 3 * 3 / 6 / 3)
    assert unigrams.probability(A, [B, B]) == unigrams.probability(A, [])


@pytest.mark.parametrize("order", [1, 2, 3, 5, MAX_ORDER])
@given(sequences=SEQUENCES, history=st.lists(st.sampled_from([A, B, C]), max_size=8))
def test_probabilities_sum_to_one_after_any_history(order, sequences, history):
    model = NGram(sequences, order=order, num_tokens=4)
    shares = [model.probability(token, history) for token in (EOS_ID, A, B, C)]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0
    assert model.probability(A, history) == model.probability(A, [BOS_ID] * order + history)


def test_without_data_every_token_is_as_likely():
    assert NGram([], order=3, num_tokens=8).probability(A, [B]) == 1 / 8


def test_the_larger_a_count_the_more_is_taken_from_it():
    # 10 tokens stand once (the end among them), 4 twice, 2 three times and 1 four times; one is never seen.
    once, twice, thrice, most = range(10, 19), range(20, 24), range(30, 32), 40
    model = NGram([[*once, *[*twice] * 2, *[*thrice] * 3, *[most] * 4]], order=1, num_tokens=18)
    share = 10 / (10 + 2 * 4)
    second, third = 2 - 3 * share * 2 / 4, 3 - 4 * share * 1 / 2
    left = (10 * share + 4 * second + 3 * third) / 28 / 18
    assert model.probability(99, []) == pytest.approx(left)
    assert model.probability(10, []) == pytest.approx((1 - share) / 28 + left)
    assert model.probability(20, []) == pytest.approx((2 - second) / 28 + left)
    assert model.probability(30, []) == pytest.approx((3 - third) / 28 + left)
    assert model.probability(40, []) == pytest.approx((4 - third) / 28 + left)


def test_never_less_is_taken_from_a_larger_count():
    # One token stands once (the end), 2 twice, 8 three times, 9 four times: 2 - 3 Y n3 / n2 is below zero.
    tokens = [token for token in range(10, 29) for _ in range(2 if token < 12 else 3 if token < 20 else 4)]
    model = NGram([tokens], order=1, num_tokens=21)
    unseen, end, two, three, four = (model.probability(token, []) for token in (99, EOS_ID, 10, 12, 20))
    assert unseen > 0
    assert two - unseen == pytest.approx((2 - 1 / 5) / 65)
    assert unseen + end + 2 * two + 8 * three + 9 * four == pytest.approx(1)


def test_a_longer_memory_learns_what_a_shorter_one_cannot():
    alternating = [[A, A, B, B] * 10]
    losses = [NGram(alternating * 5, order=order, num_tokens=3).loss(alternating) for order in (1, 2, 3)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.2


@pytest.mark.parametrize("order", [0, 13])
def test_orders_it_does_not_have_are_refused(order):
    with pytest.raises(ValueError, match=f"order={order} must be from 1 to 12"):
        NGram([], order=order, num_tokens=3)
