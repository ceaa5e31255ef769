"""Every wrong answer has one kind, and the kinds mean what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.failures import OUTCOMES, classify_answer, first_difference


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("9284", "exact"),
        ("928", "stopped early"),
        ("", "stopped early"),
        ("92841", "stopped late"),
        ("92844", "stopped late"),
        ("984", "omitted"),
        ("284", "omitted"),
        ("92284", "repeated"),
        ("29284", "repeated"),
        ("9824", "swapped"),
        ("4829", "swapped"),
        ("9285", "wrong symbols"),
        ("95284", "wrong symbols"),
        ("1", "wrong symbols"),
        ("999999", "wrong symbols"),
    ],
)
def test_kinds_of_answers_to_4829(output, kind):
    assert classify_answer(output, "9284", stopped=True) == kind
    assert classify_answer(output, "9284", stopped=False) == "never stopped"


words = st.lists(st.sampled_from("abc"), max_size=6)


@given(output=words, expected=words.filter(bool), stopped=st.booleans())
def test_only_the_right_answer_that_stops_is_exact(output, expected, stopped):
    kind = classify_answer(output, expected, stopped=stopped)
    assert kind in OUTCOMES
    assert (kind == "exact") == (stopped and output == expected)
    if kind == "omitted":
        assert len(output) < len(expected)
    if kind == "repeated":
        assert len(output) > len(expected)
    if kind == "swapped":
        assert sorted(output) == sorted(expected)


@given(output=words, expected=words)
def test_everything_before_the_first_wrong_place_is_right(output, expected):
    place = first_difference(output, expected)
    assert (place is None) == (output == expected)
    if place is not None:
        assert output[:place] == expected[:place]
        assert output[place : place + 1] != expected[place : place + 1]
