"""Patterns: correct continuations, motifs held out with all rotations, tokenized as typed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import ConfigError, load_preset
from core.config.tasks import PatternsConfig
from core.storage.errors import InputError
from core.tasks.patterns import SYMBOLS, Patterns
from core.text.vocab import EOS_ID

TASK = Patterns(PatternsConfig(min_motif=2, max_motif=5, max_length=16))
SMALL = Patterns(PatternsConfig(min_motif=1, max_motif=3, max_length=9))
SPLITS = ("train", "validation", "test")


def drawn(task: Patterns, count: int, split: str, seed: int = 0) -> list[tuple[str, str]]:
    """Draw patterns as (input, continuation)."""
    batch = task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    assert batch.src.shape == (count, task.max_length + 2)
    assert batch.tgt.shape == (count, task.answer_length + 2)
    return [
        tuple("".join(task.src_vocab.decode(row[1 : row.index(EOS_ID)])) for row in pair)
        for pair in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True)
    ]


def motif_of(shown: str) -> str:
    """Find the shortest motif by trying all."""
    for size in range(1, len(shown) // 2 + 1):
        if (shown[:size] * len(shown))[: len(shown)] == shown:
            return shown[:size]
    raise AssertionError(f"no motif in {shown}")


def rotations(motif: str) -> set[str]:
    return {motif[by:] + motif[:by] for by in range(len(motif))}


@pytest.mark.parametrize("task", [TASK, SMALL], ids=["2-5", "1-3"])
@pytest.mark.parametrize("split", SPLITS)
def test_samples_repeat_a_motif_and_have_correct_continuations(task, split):
    for shown, following in drawn(task, 400, split):
        motif = motif_of(shown)
        assert task.min_motif <= len(motif) <= task.max_motif
        assert 2 * len(motif) <= len(shown) <= task.max_length
        assert shown + following == (motif * 30)[: len(shown) + task.answer_length]
        assert task.answer(list(shown)) == list(following)


def test_motifs_and_their_rotations_are_in_one_split():
    seen = {split: {min(rotations(motif_of(shown))) for shown, _ in drawn(TASK, 4_000, split)} for split in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not seen[one] & seen[other]


def test_all_input_lengths_and_motif_lengths_occur():
    patterns = drawn(TASK, 4_000, "train")
    sizes = [len(motif_of(shown)) for shown, _ in patterns]
    for size in range(2, 6):
        lengths = {len(shown) for (shown, _), found in zip(patterns, sizes, strict=True) if found == size}
        assert lengths == set(range(2 * size, 17))
        # Approximate: more than a tenth of the 45 motifs of two symbols may be held out.
        assert sizes.count(size) / 4_000 == pytest.approx(0.25, abs=0.06)
    assert set("".join(shown for shown, _ in patterns)) == set(SYMBOLS)


@given(motif=st.text(SYMBOLS, min_size=1, max_size=7), shown=st.integers(0, 20))
def test_answers_and_gold_alignment_equal_a_naive_loop(motif, shown):
    text = (motif * 30)[: 2 * len(motif) + shown]
    symbols = TASK.tokenize(text)
    motif = motif_of(text)
    expected = (motif * 60)[len(text) : len(text) + 4]
    assert "".join(TASK.answer(symbols)) == expected
    assert TASK.gold_alignment(symbols) == [
        [place for place in range(len(text)) if (len(text) + number - place) % len(motif) == 0] for number in range(4)
    ]


@pytest.mark.parametrize("text", ["ababa", "a b a b a", "A,B,A,B,A", " ab aba\n"])
def test_patterns_may_be_typed_with_or_without_separators(text):
    assert TASK.tokenize(text) == list("ababa")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "input is empty; an example is: a b a b a"),
        ("abc", "input='abc' must contain its motif at least twice in full: a b a b a"),
        ("abcab", "input='abcab' must contain"),
        ("ababc", "input='ababc' must contain"),
        ("a", "input='a' must contain"),
        ("abxab", "'x' at position 3 is not one of a b c"),
        ("ab1", "'1' at position 3"),
        ("äbäb", "'ä' at position 1"),
        ("a" * 2_001, "input has 2001 characters; the maximum is 2000"),
    ],
    ids=lambda value: value[:12],
)
def test_invalid_patterns_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        TASK.tokenize(text)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("abab", ""),
        ("abcdeabcde", ""),
        ("aaaa", "a motif of 1 symbols is not in the training inputs (2–5 symbols)"),
        ("abcdefabcdef", "a motif of 6 symbols is not in the training inputs (2–5 symbols)"),
        ("ab" * 9, "longer than any training input (4–16 tokens)"),
    ],
)
def test_note_reports_other_motif_and_input_lengths(text, note):
    assert TASK.note(TASK.tokenize(text)) == note


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.min_motif": 6}, "task.min_motif=6 must not be above task.max_motif=5"),
        (
            {"task.max_motif": 9},
            "task.max_length=16 must be at least twice task.max_motif=9: a motif is only determined",
        ),
        ({"task.max_length": 31}, "task.max_length=31 with BOS and EOS needs 33 positions"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        load_preset("pattern-completion").with_changes(changes)
