"""N-gram model: probabilities computed by hand, normalized for any data, better with a longer context."""

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
    """Trained on ``a b`` and ``a``: bigrams ^a twice, ab, b$ and a$ once each, so the discount is 0.6."""
    return NGram([[A, B], [A]], order=2, num_tokens=3)


def test_unigrams_use_continuation_counts():
    # a follows BOS, b follows a, EOS follows both: 1, 1 and 2 of 4; the discount is 2 / (2 + 2 · 1).
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
def test_bigrams_are_discounted_and_interpolated_with_unigrams(bigrams, token, history, probability):
    assert bigrams.probability(token, history) == pytest.approx(probability)


def test_the_loss_includes_eos(bigrams):
    expected = -(math.log(0.775) + math.log(0.35) + math.log(0.7)) / 3
    assert bigrams.loss([[A, B]]) == pytest.approx(expected)


def test_order_one_uses_token_counts():
    # a three times, b once, EOS twice: n1 = n2 = 1, so the discount is 1 / 3.
    unigrams = NGram([[A, A], [A, B]], order=1, num_tokens=3)
    assert unigrams.probability(A, []) == pytest.approx((3 - 1 / 3) / 6 + 1 / 3 * 3 / 6 / 3)
    assert unigrams.probability(A, [B, B]) == unigrams.probability(A, [])


@pytest.mark.parametrize("order", [1, 2, 3, MAX_ORDER])
@given(sequences=SEQUENCES, history=st.lists(st.sampled_from([A, B, C]), max_size=8))
def test_probabilities_sum_to_one_after_any_history(order, sequences, history):
    model = NGram(sequences, order=order, num_tokens=4)
    probabilities = [model.probability(token, history) for token in (EOS_ID, A, B, C)]
    assert sum(probabilities) == pytest.approx(1)
    assert min(probabilities) > 0
    assert model.probability(A, history) == model.probability(A, [BOS_ID] * order + history)


def test_without_data_the_distribution_is_uniform():
    assert NGram([], order=3, num_tokens=8).probability(A, [B]) == 1 / 8


def test_larger_counts_have_larger_discounts():
    # 10 tokens occur once (EOS among them), 4 twice, 2 three times and 1 four times; one never occurs.
    once, twice, thrice, most = range(10, 19), range(20, 24), range(30, 32), 40
    model = NGram([[*once, *[*twice] * 2, *[*thrice] * 3, *[most] * 4]], order=1, num_tokens=18)
    y = 10 / (10 + 2 * 4)
    second, third = 2 - 3 * y * 2 / 4, 3 - 4 * y * 1 / 2
    left = (10 * y + 4 * second + 3 * third) / 28 / 18
    assert model.probability(99, []) == pytest.approx(left)
    assert model.probability(10, []) == pytest.approx((1 - y) / 28 + left)
    assert model.probability(20, []) == pytest.approx((2 - second) / 28 + left)
    assert model.probability(30, []) == pytest.approx((3 - third) / 28 + left)
    assert model.probability(40, []) == pytest.approx((4 - third) / 28 + left)


def test_a_larger_count_never_has_a_smaller_discount():
    # One token occurs once (EOS), 2 twice, 8 three times, 9 four times: 2 - 3 Y n3 / n2 is negative.
    tokens = [token for token in range(10, 29) for _ in range(2 if token < 12 else 3 if token < 20 else 4)]
    model = NGram([tokens], order=1, num_tokens=21)
    unseen, end, two, three, four = (model.probability(token, []) for token in (99, EOS_ID, 10, 12, 20))
    assert unseen > 0
    assert two - unseen == pytest.approx((2 - 1 / 5) / 65)
    assert unseen + end + 2 * two + 8 * three + 9 * four == pytest.approx(1)


def test_a_longer_context_lowers_the_loss():
    alternating = [[A, A, B, B] * 10]
    losses = [NGram(alternating * 5, order=order, num_tokens=3).loss(alternating) for order in (1, 2, 3)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.2


@pytest.mark.parametrize("order", [0, 13])
def test_orders_out_of_range_are_refused(order):
    with pytest.raises(ValueError, match=f"order={order} must be from 1 to 12"):
        NGram([], order=order, num_tokens=3)
