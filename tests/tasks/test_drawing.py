"""Splits are disjoint, stable and independent of padding; draws depend on their generator only; distinct rows."""

from dataclasses import dataclass

import pytest
import torch

from core.config.tasks import DigitsConfig
from core.tasks import Batch, sample_distinct
from core.tasks.data import SHARES, add_bos_eos, left_align, pad_rows, split_mask
from core.tasks.sequences import Digits
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

SPLITS = ("train", "validation", "test")
DIGITS = Digits(DigitsConfig(transform="reverse", min_length=3, max_length=10))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def all_sequences(length: int) -> torch.Tensor:
    return torch.cartesian_prod(*[torch.arange(3, 13)] * length).reshape(-1, length)


# --- splits


def test_every_sequence_is_in_exactly_one_split_with_shares_80_10_10():
    rows = all_sequences(5)
    masks = {split: split_mask(rows, split) for split in SPLITS}
    assert (sum(mask.int() for mask in masks.values()) == 1).all()
    for split, share in SHARES.items():
        assert masks[split].float().mean().item() == pytest.approx(share, abs=0.01)


def test_split_is_independent_of_padding_and_of_other_rows():
    rows = all_sequences(4)[::7]
    padded = torch.nn.functional.pad(rows, (0, 9), value=PAD_ID)
    for split in SPLITS:
        assert torch.equal(split_mask(rows, split), split_mask(padded, split))
        assert torch.equal(split_mask(rows, split)[5:6], split_mask(rows[5:6], split))


def test_split_depends_on_every_token_and_its_position():
    rows = all_sequences(4)
    held_out = split_mask(rows, "test").reshape(10, 10, 10, 10).float()
    for position in range(4):  # no single digit decides, and neighboring digits differ
        other = [axis for axis in range(4) if axis != position]
        assert held_out.mean(dim=other) == pytest.approx(torch.full((10,), 0.1), abs=0.04)
        assert 0.05 < (held_out != held_out.roll(1, position)).float().mean() < 0.3
    assert not torch.equal(held_out, held_out.permute(3, 2, 1, 0))


def test_split_hash_never_changes():
    # The hash decides what is held out of every existing run. This is a plain re-implementation.
    rows = torch.cat([torch.nn.functional.pad(all_sequences(2), (0, 1)), all_sequences(3)])
    buckets = []
    for row in rows.tolist():
        value = sum(token * pow(48_271, index + 1, 2**31 - 1) for index, token in enumerate(row)) % (2**31 - 1)
        for multiplier, shift in ((0x2C1B3C6D, 12), (0x297A2D39, 15)):
            value = ((value ^ (value >> shift)) * multiplier) % 2**31
        buckets.append((value ^ (value >> 15)) % 100)
    assert split_mask(rows, "test").tolist() == [bucket < 10 for bucket in buckets]
    assert split_mask(rows, "validation").tolist() == [10 <= bucket < 20 for bucket in buckets]


def test_samples_of_different_splits_share_no_sequence():
    task = Digits(DigitsConfig(transform="reverse", min_length=2, max_length=4))
    sources = [
        {tuple(row) for row in task.sample(3_000, split=split, generator=seeded()).src.tolist()} for split in SPLITS
    ]
    assert not sources[0] & sources[1]
    assert not sources[0] & sources[2]
    assert not sources[1] & sources[2]


# --- draws


def test_draws_depend_on_the_given_generator_only():
    first = DIGITS.sample(50, split="train", generator=seeded(3))
    state = torch.get_rng_state()
    second = DIGITS.sample(50, split="train", generator=seeded(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.src, second.src)
    assert torch.equal(first.tgt, second.tgt)
    assert not torch.equal(first.src, DIGITS.sample(50, split="train", generator=seeded(4)).src)


def test_repeated_draws_from_one_generator_differ():
    generator = seeded()
    first, second = (DIGITS.sample(50, split="train", generator=generator) for _ in range(2))
    assert not torch.equal(first.src, second.src)


def test_distinct_samples_keep_the_order_drawn():
    task = Digits(DigitsConfig(transform="reverse", min_length=3, max_length=4))
    plain = task.sample(60, split="test", generator=seeded(5)).src.tolist()
    pairs = sample_distinct(task, 60, split="test", generator=seeded(5))
    rows = [tuple(row) for row in pairs.src.tolist()]
    assert len(rows) == len(set(rows)) == 60
    expected = list(dict.fromkeys(map(tuple, plain)))
    assert len(expected) < 60  # there were duplicates
    assert rows[: len(expected)] == expected
    for src, tgt in zip(pairs.src.tolist(), pairs.tgt.tolist(), strict=True):
        assert src[1 : src.index(EOS_ID)] == tgt[1 : tgt.index(EOS_ID)][::-1]


def test_distinct_samples_of_a_small_split_are_the_whole_split():
    task = Digits(DigitsConfig(transform="reverse", min_length=3, max_length=3))
    pairs = sample_distinct(task, 1_000, split="test", generator=seeded())
    assert len(pairs) == split_mask(all_sequences(3), "test").sum() == len(pairs.src.unique(dim=0))


def test_distinct_samples_keep_the_class_of_the_sampled_pairs(monkeypatch):
    @dataclass(frozen=True)
    class OtherBatch(Batch):
        """As a data bug returns it."""

    sample = DIGITS.sample
    monkeypatch.setattr(DIGITS, "sample", lambda *given, **more: OtherBatch(*vars(sample(*given, **more)).values()))
    assert isinstance(sample_distinct(DIGITS, 10, split="train", generator=seeded()), OtherBatch)


# --- padding


def test_rows_are_padded_framed_and_aligned():
    rows = pad_rows([[5, 6], [7], []], 3)
    assert rows.tolist() == [[5, 6, 0], [7, 0, 0], [0, 0, 0]]
    assert add_bos_eos(rows).tolist() == [
        [BOS_ID, 5, 6, EOS_ID, 0],
        [BOS_ID, 7, EOS_ID, 0, 0],
        [BOS_ID, EOS_ID, 0, 0, 0],
    ]
    assert add_bos_eos(rows, has_eos=False)[0].tolist() == [BOS_ID, 5, 6, 0, 0]
    assert left_align(torch.tensor([[0, 5, 0, 6], [7, 8, 0, 0]])).tolist() == [[5, 6, 0, 0], [7, 8, 0, 0]]
