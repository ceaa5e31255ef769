"""Sums: the right ones, held out either way round, read as people type them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError, load_preset
from core.storage.errors import InputError
from core.tasks.addition import Addition
from core.text.vocab import EOS_ID

TASK = Addition(max_digits=3)
SPLITS = ("train", "validation", "test")


def sums(task: Addition, count: int, split: str, seed: int = 0) -> list[tuple[int, int, int]]:
    """Draw sums as (first, second, sum), after checking that every number is written without leading zeros."""
    batch = task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    assert batch.src.shape == (count, 2 * task.max_digits + 3)
    assert batch.tgt.shape == (count, task.max_digits + 3)
    found = []
    for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
        words = ["".join(task.src_vocab.decode(row[1 : row.index(EOS_ID)])) for row in (src, tgt)]
        first, second = words[0].split("+")
        numbers = (int(first), int(second), int(words[1]))
        assert (first, second, words[1]) == tuple(str(number) for number in numbers)
        found.append(numbers)
    return found


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("digits", [2, 3, 9])
def test_samples_hold_the_right_sums(split, digits):
    for first, second, total in sums(Addition(max_digits=digits), 300, split):
        assert first + second == total
        assert max(first, second) < 10**digits


def test_every_number_of_digits_is_about_as_likely_and_so_is_every_digit():
    numbers = [number for pair in sums(TASK, 4_000, "train") for number in pair[:2]]
    for digits in (1, 2, 3):
        of_that_length = [number for number in numbers if len(str(number)) == digits]
        assert len(of_that_length) / len(numbers) == pytest.approx(1 / 3, abs=0.03)
        for last in range(10):
            share = sum(number % 10 == last for number in of_that_length) / len(of_that_length)
            assert share == pytest.approx(0.1, abs=0.03)
    assert {0, 9, 10, 99, 100, 999} & set(numbers) >= {0, 9, 10, 99}


def test_no_sum_is_in_two_splits_not_even_the_other_way_round():
    small = Addition(max_digits=2)
    seen = {split: {frozenset(pair[:2]) for pair in sums(small, 3_000, split)} for split in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not seen[one] & seen[other]


def test_the_same_generator_gives_the_same_sums():
    assert sums(TASK, 50, "test", seed=3) == sums(TASK, 50, "test", seed=3) != sums(TASK, 50, "test", seed=4)


@given(first=st.integers(0, 10**12), second=st.integers(0, 10**12))
def test_answers_are_those_of_python(first, second):
    symbols = TASK.tokenize(f"{first} + {second}")
    assert symbols == list(f"{first}+{second}")
    assert "".join(TASK.answer(symbols)) == str(first + second)
    assert TASK.gold_alignment(symbols) == [[] for _ in str(first + second)]


@pytest.mark.parametrize("text", ["27+58", "2 7 + 5 8", " 27 +58\n", "027 + 0058", "2,7+5,8"])
def test_sums_may_be_typed_in_any_usual_way(text):
    assert TASK.tokenize(text) == ["2", "7", "+", "5", "8"]


def test_zeros_that_lead_are_dropped_but_zero_stays():
    assert TASK.tokenize("000+0") == ["0", "+", "0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"input is empty; an example is: 27 \+ 58"),
        ("27", r"input='27' must be two numbers with one \+ between them: 27 \+ 58"),
        ("27+", r"input='27\+' must be two numbers"),
        ("+27", "must be two numbers"),
        ("1+2+3", r"input='1\+2\+3' must be two numbers"),
        ("2-1", "'-' at position 2 is not one of 0 1 2"),
        ("two+1", "'t' at position 1"),
        ("٤+1", "'٤' at position 1"),
        ("1" * 500, r"input='1111111111111111111111111111111111111\.\.\.' must be"),
        ("1" * 2_001, "input has 2001 characters; the maximum is 2000"),
    ],
    ids=lambda value: value[:12],
)
def test_what_is_no_sum_is_refused_and_named(text, message):
    with pytest.raises(InputError, match=message):
        TASK.tokenize(text)


@given(text=st.text(max_size=20) | st.text("0123456789+ ", max_size=20))
def test_any_text_is_read_or_refused(text):
    try:
        assert TASK.answer(TASK.tokenize(text))
    except InputError as error:
        assert str(error)  # noqa: PT017 - no error at all is as good


def test_a_number_too_long_is_noted_though_the_sum_is_not():
    assert TASK.note(TASK.tokenize("999 + 999")) == TASK.note(TASK.tokenize("0 + 0")) == ""
    said = "a number of 4 digits is longer than any training input (1–3 digits)"
    assert TASK.note(TASK.tokenize("1 + 1234")) == said


def test_sums_too_long_for_the_model_are_refused():
    with pytest.raises(ConfigError, match=r"task\.max_digits=7 with BOS and EOS needs 17 positions, more than"):
        load_preset("addition").with_changes({"task.max_digits": 7, "model.max_seq_len": 16})
