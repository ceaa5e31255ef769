"""Every answer has exactly one outcome, with its documented meaning."""

from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.failures import OUTCOMES, classify_answer, first_difference

ANSWERS = [
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
]


def test_outcomes_of_answers_to_4829():
    for output, outcome in ANSWERS:
        assert classify_answer(output, "9284", stopped=True) == outcome, output
        assert classify_answer(output, "9284", stopped=False) == "never stopped", output


words = st.lists(st.sampled_from("abc"), max_size=6)


@given(output=words, reference=words.filter(bool), stopped=st.booleans())
def test_only_a_stopped_output_equal_to_its_reference_is_exact(output, reference, stopped):
    outcome = classify_answer(output, reference, stopped=stopped)
    assert outcome in OUTCOMES
    assert (outcome == "exact") == (stopped and output == reference)
    if outcome == "omitted":
        assert len(output) < len(reference)
    if outcome == "repeated":
        assert len(output) > len(reference)
    if outcome == "swapped":
        assert sorted(output) == sorted(reference)


@given(output=words, reference=words)
def test_everything_before_the_first_difference_is_equal(output, reference):
    index = first_difference(output, reference)
    assert (index is None) == (output == reference)
    if index is not None:
        assert output[:index] == reference[:index]
        assert output[index : index + 1] != reference[index : index + 1]
