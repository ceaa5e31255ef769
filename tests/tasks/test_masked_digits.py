"""Masked digits: every answer is shown elsewhere, masks are as many as said, and maskings share a split."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import ConfigError, load_preset
from core.config.tasks import MaskedDigitsConfig
from core.evaluation.accuracy import evaluate
from core.storage.errors import InputError
from core.tasks import Batch, fixed_pairs
from core.tasks.masked_digits import MASK, MASK_ID, MaskedDigits
from core.text.vocab import EOS_ID, PAD_ID
from tests.support.scripted_models import ScriptedModel

SIZES = {"min_half": 2, "max_half": 5, "masked_share": 0.15}
TASK = MaskedDigits(MaskedDigitsConfig(**SIZES))
SPLITS = ("train", "validation", "test")


def symbols_of(task: MaskedDigits, rows: torch.Tensor) -> list[list[str]]:
    return [task.src_vocab.decode(row[1 : row.index(EOS_ID)]) for row in rows.tolist()]


def drawn(task: MaskedDigits, count: int, split: str = "train", seed: int = 0) -> list[tuple[list[str], list[str]]]:
    """Draw sequences as (input, answer)."""
    batch = task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    assert batch.src.shape == batch.tgt.shape == (count, 2 * task.max_half + 2)
    return list(zip(symbols_of(task, batch.src), symbols_of(task, batch.tgt), strict=True))


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 6), st.integers(3, 9)).filter(lambda sizes: sizes[0] <= sizes[1]),
    share=st.sampled_from([0.01, 0.15, 0.3, 0.5]),
    split=st.sampled_from(SPLITS),
    seed=st.integers(0, 999),
)
def test_every_masked_digit_is_shown_at_its_other_occurrence(sizes, share, split, seed):
    task = MaskedDigits(MaskedDigitsConfig(min_half=sizes[0], max_half=sizes[1], masked_share=share))
    for shown, answer in drawn(task, 20, split, seed):
        half = len(answer) // 2
        assert sizes[0] <= half <= sizes[1]
        assert answer[half:] == answer[:half][::-1]
        assert len(shown) == len(answer) == 2 * half
        assert all(symbol in (MASK, right) for symbol, right in zip(shown, answer, strict=True))
        assert shown.count(MASK) == max(1, int(2 * half * share + 0.5))
        assert task.answer(shown) == answer
        assert task.references(shown) == [answer]
        for symbol, right, sources in zip(shown, answer, task.gold_alignment(shown), strict=True):
            assert [shown[index] for index in sources] == ([right] if symbol == MASK else [])
        assert task.tokenize(task.source_text(shown)) == shown
        assert task.note(shown) == ""


def test_masks_are_anywhere_and_lengths_and_digits_uniform():
    pairs = drawn(TASK, 8_000)
    lengths = Counter(len(answer) for _, answer in pairs)
    assert {length: count / 8_000 for length, count in lengths.items()} == pytest.approx(
        dict.fromkeys((4, 6, 8, 10), 0.25), abs=0.03
    )
    masked = Counter(
        index for shown, _ in pairs for index, symbol in enumerate(shown) if (len(shown), symbol) == (6, MASK)
    )
    assert {index: count / lengths[6] for index, count in masked.items()} == pytest.approx(
        dict.fromkeys(range(6), 1 / 6), abs=0.04
    )
    digits = Counter(symbol for _, answer in pairs for symbol in answer)
    assert len(digits) == 10
    assert max(digits.values()) / min(digits.values()) < 1.2


def test_all_maskings_of_a_sequence_are_in_one_split():
    seen = {split: {tuple(answer) for _, answer in drawn(TASK, 3_000, split)} for split in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not seen[one] & seen[other]


def test_sequences_of_one_length_are_distinct_and_held_out():
    assert list(TASK.lengths) == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    trained = {tuple(answer) for _, answer in drawn(TASK, 5_000)}
    for length in TASK.lengths:
        batch = TASK.sample_of_length(length, 30, generator=torch.Generator().manual_seed(1))
        assert ((batch.src != PAD_ID).sum(dim=1) == length + 2).all()
        assert len({tuple(row) for row in batch.src.tolist()}) == len(batch)
        if length in TASK.trained_lengths:
            assert not trained & {tuple(answer) for answer in symbols_of(TASK, batch.tgt)}
    with pytest.raises(ValueError, match="cannot draw inputs of length 7"):
        TASK.sample_of_length(7, 3, generator=torch.Generator())


def test_typed_input_may_be_written_in_several_ways():
    for text in ("4 8 2 <MASK> 8 4", "482<mask>84", "4,8,2,<Mask>,8,4", " 48 2<MASK> 84 "):
        assert TASK.tokenize(text) == ["4", "8", "2", MASK, "8", "4"]
    for text, message in (
        ("", "input is empty; an example is: 4 8 <MASK> 4"),
        ("48x4", "'X' at position 3 is not one of 0 1 2 3 4 5 6 7 8 9 <MASK>"),
        ("4 <MASK 4", "'<' at position 2 is not one of"),
        ("4 <PAD> 4", "'<' at position 2 is not one of"),
    ):
        with pytest.raises(InputError, match=message.replace("<", "[<]")):
            TASK.tokenize(text)


@pytest.mark.parametrize("text", ["4 8 2", "4 8 <MASK>", "4 8 8 5", "4 <MASK> <MASK> 4", "<MASK> <MASK>"])
def test_an_input_that_does_not_show_its_answer_has_none(text):
    symbols = TASK.tokenize(text)
    assert TASK.answer(symbols) == TASK.references(symbols) == TASK.gold_alignment(symbols) == []
    assert "no reference answer" in TASK.note(symbols)


def test_examples_are_in_the_training_range_and_have_answers():
    for task in (
        TASK,
        MaskedDigits(MaskedDigitsConfig(min_half=20, max_half=30, masked_share=0.15)),
    ):
        for text in task.examples:
            symbols = task.tokenize(text)
            assert MASK in symbols
            assert len(task.answer(symbols)) == len(symbols) in task.trained_lengths
            assert task.note(symbols) == ""


def test_token_accuracy_counts_the_masked_digits_only():
    pairs = fixed_pairs(TASK, 200, split="test")
    is_masked = pairs.src[:, 1:] == MASK_ID
    assert torch.equal(pairs.is_scored, is_masked)
    assert torch.equal(pairs[:5].trimmed().is_scored.sum(), is_masked[:5].sum())

    def copying(src: torch.Tensor) -> torch.Tensor:  # right but for the masks
        return src[:, 1:]

    model = ScriptedModel(copying, vocab_size=len(TASK.tgt_vocab))
    measured = evaluate(model, pairs)
    assert (measured.token_accuracy, measured.exact_match) == (0, 0)
    assert evaluate(model, Batch(pairs.src, pairs.tgt)).token_accuracy == pytest.approx(
        1 - (is_masked.sum() / (pairs.tgt_out != PAD_ID).sum()).item()
    )


def test_masks_are_ordinary_symbols_and_never_targets():
    batch = TASK.sample(200, split="train", generator=torch.Generator().manual_seed(0))
    assert TASK.src_vocab.tokens[MASK_ID] == MASK
    assert MASK in TASK.src_vocab.symbols
    assert (batch.src == MASK_ID).any(dim=1).all()
    assert not (batch.tgt == MASK_ID).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.masked_share": 0.0}, "task.masked_share=0.0 should be greater than 0"),
        ({"task.masked_share": 0.6}, "task.masked_share=0.6 should be less than or equal to 0.5"),
        ({"task.min_half": 9}, "task.min_half=9 must not be above task.max_half=8"),
        ({"task.max_half": 40}, "task.max_half=40 with BOS and EOS needs 82 positions"),
    ],
)
def test_invalid_settings_are_refused(changes, message):
    with pytest.raises(ConfigError) as caught:
        load_preset("masked-digits").with_changes(changes)
    assert message in str(caught.value)
