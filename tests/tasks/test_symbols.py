"""Numbers and words: their vocabularies, what is typed, what is not known, and what training is shown."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import load_preset, preset_names
from core.storage.errors import InputError
from core.tasks import Batch, Task, build_task, fixed_pairs
from core.tasks.drawing import split_mask
from core.tasks.sequences import UNKNOWN_SHARE, WORDS, Numbers, Words
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, UNK_ID

NUMBERS = Numbers(transform="reverse", min_length=2, max_length=6)
ENDLESS = Numbers(transform="reverse", min_length=10, max_length=10, eos_in_targets=False)
SENTENCES = Words(transform="reverse", min_length=3, max_length=10, has_unk=True)
STRICT = Words(transform="copy", min_length=3, max_length=10, has_unk=False)
SPLITS = ("train", "validation", "test")


def sample(task: Task, count: int, split: str = "train", seed: int = 0) -> Batch:
    return task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))


def test_vocabularies_have_the_sizes_they_are_told_to_have():
    assert (len(NUMBERS.src_vocab), len(SENTENCES.src_vocab), len(STRICT.src_vocab)) == (20, 38, 37)
    assert NUMBERS.src_vocab.symbols == tuple(str(number) for number in range(1, 18))
    assert len(set(WORDS)) == 34


@pytest.mark.parametrize("task", [NUMBERS, SENTENCES, STRICT], ids=["numbers", "sentences", "strict"])
@pytest.mark.parametrize("split", SPLITS)
def test_samples_hold_the_right_answers_and_end(task, split):
    batch = sample(task, 300, split)
    for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
        end = src.index(EOS_ID)
        symbols = src[1:end]
        assert src[0] == tgt[0] == BOS_ID
        assert task.min_length <= len(symbols) <= task.max_length
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(symbols)
        gold = task.gold_alignment(task.src_vocab.decode(symbols))
        answer = [symbols[position] for (position,) in gold]
        assert tgt == [BOS_ID, *answer, EOS_ID, *[PAD_ID] * (len(src) - end - 1)]


@pytest.mark.parametrize("split", SPLITS)
def test_answers_without_eos_are_else_the_same(split):
    batch = sample(ENDLESS, 200, split)
    assert (batch.src[:, -1] == EOS_ID).all()
    assert not (batch.tgt == EOS_ID).any()
    assert torch.equal(batch.tgt[:, 1:-1], batch.src[:, 1:-1].flip(1))
    assert (batch.tgt[:, -1] == PAD_ID).all()


# --- words that are not known -----------------------------------------------------------------------------------


def test_a_small_share_of_the_words_in_training_is_unk_and_none_of_those_to_measure_on():
    batch = sample(SENTENCES, 5_000)
    words = (batch.src > EOS_ID).sum()
    unknown = (batch.src == UNK_ID).sum()
    assert (unknown / words).item() == pytest.approx(UNKNOWN_SHARE, abs=0.004)
    assert unknown == (batch.tgt == UNK_ID).sum()
    for split in ("validation", "test"):
        assert not (sample(SENTENCES, 2_000, split).src == UNK_ID).any()
    assert not (sample(STRICT, 2_000).src >= len(STRICT.src_vocab)).any()


def test_no_training_sentence_is_held_out_but_for_its_unknown_words():
    rows = fixed_pairs(SENTENCES, 3_000, split="train").src[:, 1:]
    symbols = rows.masked_fill(rows == EOS_ID, PAD_ID)
    known = ~(symbols == UNK_ID).any(dim=1)
    assert split_mask(symbols[known], "train").all()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("the cat sat", ["the", "cat", "sat"]),
        ("  The CAT, sat. ", ["the", "cat", "sat"]),
        ("cat", ["cat"]),
        ("the the the", ["the", "the", "the"]),
        ("the\ncat\tsat!", ["the", "cat", "sat"]),
    ],
)
def test_sentences_may_be_typed_in_any_usual_way(typed, words):
    for task in (SENTENCES, STRICT):
        assert task.tokenize(typed) == words


def test_an_unknown_word_is_unk_or_refused_as_the_preset_says():
    assert SENTENCES.src_vocab.encode(SENTENCES.tokenize("the zebra sat"))[1] == UNK_ID
    with pytest.raises(InputError, match=r"'zebra' at position 2 is not one of the a cat .* \(34 in all\)"):
        STRICT.tokenize("the zebra sat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "input is empty; an example is: 5 12 7 3 9 11"),
        ("5 18", "'18' at position 2 is not one of 1 2 3"),
        ("0", "'0' at position 1"),
        ("05", "'05' at position 1"),
        ("5127", "'5127' at position 1"),
        ("-5", "'-5' at position 1"),
        ("<BOS> 5", "'<BOS>' at position 1"),
        ("5 <PAD>", "'<PAD>' at position 2"),
    ],
)
def test_what_is_not_a_number_is_refused_and_named(text, message):
    with pytest.raises(InputError, match=message):
        NUMBERS.tokenize(text)


@given(text=st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    for task in (NUMBERS, SENTENCES, STRICT):
        try:
            assert task.src_vocab.encode(task.tokenize(text))
        except InputError as error:
            assert str(error)  # noqa: PT017 - no error at all is as good


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_offers_examples_of_a_trained_length(name):
    task = build_task(load_preset(name).task)
    assert task.examples
    for example in task.examples:
        assert task.min_length <= len(task.tokenize(example)) <= task.max_length
