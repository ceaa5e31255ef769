"""Answers made of the input's symbols: those of naive loops, whatever the input."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.tasks.sequences import Digits, first_occurrences, gather_symbols, source_positions
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

TRANSFORMS = ("reverse", "copy", "sort", "deduplicate")
ROWS = st.lists(st.lists(st.integers(3, 12), max_size=9), min_size=1, max_size=6)


def padded(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor([row + [PAD_ID] * (9 - len(row)) for row in rows])


def places_by_hand(transform: str, row: list[int]) -> list[int]:
    """Selection sort, a list of what was seen: slow and plain."""
    if transform == "reverse":
        return [len(row) - 1 - place for place in range(len(row))]
    if transform == "copy":
        return list(range(len(row)))
    if transform == "deduplicate":
        seen: list[int] = []
        for place, symbol in enumerate(row):
            if symbol not in [row[other] for other in seen]:
                seen.append(place)
        return seen
    left, places = list(range(len(row))), []
    while left:
        smallest = left[0]
        for place in left:
            if row[place] < row[smallest]:
                smallest = place
        places.append(smallest)
        left.remove(smallest)
    return places


@pytest.mark.parametrize("transform", TRANSFORMS)
@given(rows=ROWS)
def test_places_are_those_of_a_naive_loop(transform, rows):
    symbols = padded(rows)
    places = source_positions(transform, symbols)
    answers = gather_symbols(symbols, places)
    for row, found, answer in zip(rows, places.tolist(), answers.tolist(), strict=True):
        expected = places_by_hand(transform, row)
        assert found == expected + [-1] * (9 - len(expected))
        assert answer == [row[place] for place in expected] + [PAD_ID] * (9 - len(expected))


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4))
def test_the_first_of_each_kind_is_that_of_a_naive_loop(rows):
    expected = [[value not in row[:place] for place, value in enumerate(row)] for row in rows]
    assert first_occurrences(torch.tensor(rows)).tolist() == expected


@pytest.mark.parametrize(
    ("transform", "typed", "answer", "gold_alignment"),
    [
        ("sort", "48292", "22489", [[2, 4], [2, 4], [0], [1], [3]]),
        ("deduplicate", "48482", "482", [[0, 2], [1, 3], [4]]),
        ("deduplicate", "1111", "1", [[0, 1, 2, 3]]),
        ("sort", "1111", "1111", [[0, 1, 2, 3]] * 4),
        ("reverse", "122", "221", [[2], [1], [0]]),  # the very place decides, not the symbol
        ("copy", "122", "122", [[0], [1], [2]]),
    ],
)
def test_answers_and_where_they_come_from(transform, typed, answer, gold_alignment):
    task = Digits(transform=transform, min_length=3, max_length=10)
    symbols = task.tokenize(typed)
    assert "".join(task.answer(symbols)) == answer
    assert task.gold_alignment(symbols) == gold_alignment


@pytest.mark.parametrize("transform", ["sort", "deduplicate"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_samples_hold_the_right_answers_and_end(transform, split):
    task = Digits(transform=transform, min_length=2, max_length=8)
    batch = task.sample(200, split=split, generator=torch.Generator().manual_seed(1))
    assert batch.src.shape == batch.tgt.shape == (200, 10)
    for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
        symbols = task.src_vocab.decode(src[1 : src.index(EOS_ID)])
        end = tgt.index(EOS_ID)
        assert tgt[0] == BOS_ID
        assert task.tgt_vocab.decode(tgt[1:end]) == task.answer(symbols)
        assert set(tgt[end + 1 :]) <= {PAD_ID}


def test_every_transform_is_asked_of_the_same_inputs():
    sources = [
        Digits(transform=transform, min_length=3, max_length=10)
        .sample(50, split="train", generator=torch.Generator().manual_seed(0))
        .src
        for transform in TRANSFORMS
    ]
    assert all(torch.equal(source, sources[0]) for source in sources)
