"""Tasks know their answers, frame their data, split it for good, and read what people type."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.storage.errors import InputError
from core.tasks import sample_distinct
from core.tasks.drawing import SHARES, split_mask
from core.tasks.sequences import Digits
from core.text.validation import MAX_INPUT_CHARACTERS
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

SPLITS = ("train", "validation", "test")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digits(transform: str = "reverse", low: int = 3, high: int = 10) -> Digits:
    return Digits(transform=transform, min_length=low, max_length=high)


def unframed(row: list[int]) -> list[int]:
    """The symbols of one framed row, after checking the frame."""
    assert row[0] == BOS_ID
    end = row.index(EOS_ID)
    assert all(token == PAD_ID for token in row[end + 1 :])
    assert all(3 <= token <= 12 for token in row[1:end])
    return row[1:end]


# --- answers ----------------------------------------------------------------------------------------------------


@given(symbols=st.lists(st.sampled_from("0123456789"), min_size=1, max_size=30))
def test_answers_and_alignments_are_those_of_a_naive_loop(symbols):
    backwards = []
    for symbol in symbols:
        backwards.insert(0, symbol)
    assert digits("reverse").answer(symbols) == backwards
    assert digits("copy").answer(symbols) == symbols
    for task in (digits("reverse"), digits("copy")):
        positions = [position for (position,) in task.gold_alignment(symbols)]
        assert sorted(positions) == list(range(len(symbols)))
        assert [symbols[position] for position in positions] == task.answer(symbols)


@pytest.mark.parametrize("transform", ["reverse", "copy"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("low", "high"), [(3, 10), (1, 6), (4, 4)])
def test_samples_are_framed_and_hold_the_right_answers(transform, split, low, high):
    task = digits(transform, low, high)
    batch = task.sample(100, split=split, generator=generator())
    assert len(batch) == 100
    assert batch.src.shape == batch.tgt.shape == (100, high + 2)
    assert batch.src.dtype == torch.int64
    for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
        symbols = task.src_vocab.decode(unframed(src))
        assert low <= len(symbols) <= high
        assert task.tgt_vocab.decode(unframed(tgt)) == task.answer(symbols)


def test_what_the_decoder_reads_is_one_place_behind_what_it_must_produce():
    batch = digits().sample(5, split="train", generator=generator())
    assert (batch.tgt_in[:, 0] == BOS_ID).all()
    assert torch.equal(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])
    assert torch.equal(batch[1:3].src, batch.src[1:3])
    assert torch.equal(batch[torch.tensor([4, 0])].tgt, batch.tgt[[4, 0]])


@pytest.mark.parametrize("split", SPLITS)
def test_every_length_and_digit_is_about_as_likely(split):
    batch = digits().sample(8_000, split=split, generator=generator())
    lengths = (batch.src >= 3).sum(1)
    shares = torch.bincount(lengths, minlength=11)[3:].float() / 8_000
    assert shares == pytest.approx(torch.full((8,), 1 / 8), abs=0.025)
    tokens = torch.bincount(batch.src[batch.src >= 3], minlength=13)[3:].float()
    assert (tokens / tokens.sum()) == pytest.approx(torch.full((10,), 0.1), abs=0.015)


# --- splits -----------------------------------------------------------------------------------------------------


def all_sequences(length: int) -> torch.Tensor:
    return torch.cartesian_prod(*[torch.arange(3, 13)] * length).reshape(-1, length)


def test_every_sequence_is_in_exactly_one_split_and_about_80_10_10():
    rows = all_sequences(5)
    masks = {split: split_mask(rows, split) for split in SPLITS}
    assert (sum(mask.int() for mask in masks.values()) == 1).all()
    for split, share in SHARES.items():
        assert masks[split].float().mean().item() == pytest.approx(share, abs=0.01)


def test_the_split_does_not_depend_on_padding_or_on_the_company():
    rows = all_sequences(4)[::7]
    wide = torch.nn.functional.pad(rows, (0, 9), value=PAD_ID)
    for split in SPLITS:
        assert torch.equal(split_mask(rows, split), split_mask(wide, split))
        assert torch.equal(split_mask(rows, split)[5:6], split_mask(rows[5:6], split))


def test_the_split_looks_at_every_token_and_its_place():
    rows = all_sequences(4)
    held_out = split_mask(rows, "test").reshape(10, 10, 10, 10).float()
    for place in range(4):  # neither a digit nor a neighbour decides
        assert held_out.mean(dim=[axis for axis in range(4) if axis != place]) == pytest.approx(
            torch.full((10,), 0.1), abs=0.04
        )
        assert 0.05 < (held_out != held_out.roll(1, place)).float().mean() < 0.3
    assert not torch.equal(held_out, held_out.permute(3, 2, 1, 0))


def test_the_split_is_the_same_in_every_version():
    # Held-out data of a run made yesterday must stay held out: the hash may never change.
    rows = torch.cat([torch.nn.functional.pad(all_sequences(2), (0, 1)), all_sequences(3)])
    by_hand = []
    for row in rows.tolist():
        value = sum(token * pow(48_271, place + 1, 2**31 - 1) for place, token in enumerate(row)) % (2**31 - 1)
        for multiplier, shift in ((0x2C1B3C6D, 12), (0x297A2D39, 15)):
            value = ((value ^ (value >> shift)) * multiplier) % 2**31
        by_hand.append((value ^ (value >> 15)) % 100)
    assert split_mask(rows, "test").tolist() == [bucket < 10 for bucket in by_hand]
    assert split_mask(rows, "validation").tolist() == [10 <= bucket < 20 for bucket in by_hand]


def test_samples_of_different_splits_share_no_sequence():
    task = digits(low=2, high=4)
    seen = {
        split: {tuple(row) for row in task.sample(3_000, split=split, generator=generator()).src.tolist()}
        for split in SPLITS
    }
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]


# --- drawing ----------------------------------------------------------------------------------------------------


def test_the_same_generator_state_gives_the_same_data_and_the_global_one_none():
    task = digits()
    first = task.sample(50, split="train", generator=generator(3))
    state = torch.get_rng_state()
    second = task.sample(50, split="train", generator=generator(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.src, second.src)
    assert torch.equal(first.tgt, second.tgt)
    assert not torch.equal(first.src, task.sample(50, split="train", generator=generator(4)).src)


def test_a_generator_goes_on_to_fresh_data():
    task, source = digits(), generator()
    first, second = (task.sample(50, split="train", generator=source) for _ in range(2))
    assert not torch.equal(first.src, second.src)


def test_distinct_samples_have_no_repeats_and_keep_the_order_drawn():
    task = digits(low=3, high=4)
    plain = task.sample(60, split="test", generator=generator(5)).src.tolist()
    pairs = sample_distinct(task, 60, split="test", generator=generator(5))
    rows = [tuple(row) for row in pairs.src.tolist()]
    assert len(rows) == len(set(rows)) == 60
    expected = list(dict.fromkeys(map(tuple, plain)))
    assert len(expected) < 60  # there were repeats to drop
    assert rows[: len(expected)] == expected
    for src, tgt in zip(rows, pairs.tgt.tolist(), strict=True):
        assert unframed(list(src)) == unframed(tgt)[::-1]


def test_a_small_split_gives_all_it_holds_and_no_more():
    task = digits(low=3, high=3)
    held = int(split_mask(all_sequences(3), "test").sum())
    pairs = sample_distinct(task, 1_000, split="test", generator=generator())
    assert len(pairs) == held == len(pairs.src.unique(dim=0))


def test_in_a_smaller_base_there_are_fewer_digits_to_draw_to_type_and_to_offer():
    task = Digits(transform="reverse", min_length=1, max_length=12, base=2)
    assert task.src_vocab.symbols == ("0", "1")
    assert sample_distinct(task, 100, split="train", generator=generator()).src.max() == task.src_vocab.encode(["1"])[0]
    assert task.tokenize("0110") == ["0", "1", "1", "0"]
    with pytest.raises(InputError, match="'2' at position 3 is not one of 0 1"):
        task.tokenize("012")
    for base in range(2, 11):
        offered = Digits(transform="reverse", min_length=1, max_length=12, base=base)
        assert [offered.tokenize(text) for text in offered.examples]


# --- reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["4829", "4 8 2 9", "4,8,2,9", " 48, 29\n", "4\t8,,2 9"])
def test_digits_may_be_typed_in_any_usual_way(text):
    assert digits().tokenize(text) == ["4", "8", "2", "9"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "input is empty; an example is: 4 8 2 9"),
        (" , ,\n", "input is empty"),
        ("48x9", "'x' at position 3 is not one of 0 1 2"),
        ("4-8", "'-' at position 2"),
        ("<EOS>", "'<' at position 1"),
        ("٤", "'٤' at position 1"),  # an Arabic digit
        ("4２", "'２' at position 2"),  # a full-width digit
        ("²", "'²' at position 1"),
        ("1" * (MAX_INPUT_CHARACTERS + 1), f"input has {MAX_INPUT_CHARACTERS + 1} characters; the maximum is"),
    ],
    ids=lambda value: value[:12],
)
def test_what_is_not_digits_is_refused_and_named(text, message):
    with pytest.raises(InputError, match=message):
        digits().tokenize(text)


@given(text=st.text(max_size=40))
def test_any_text_is_read_as_digits_or_refused(text):
    try:
        assert set(digits().tokenize(text)) <= set("0123456789")
    except InputError as error:
        assert str(error)  # noqa: PT017 - no error at all is as good


@pytest.mark.parametrize(("low", "high"), [(3, 10), (1, 3), (6, 8), (12, 14), (5, 5)])
def test_examples_can_be_read_and_are_of_a_trained_length(low, high):
    task = digits(low=low, high=high)
    assert task.examples
    for example in task.examples:
        assert low <= len(task.tokenize(example)) <= high
