"""Digits, numbers and words: correct answers and alignments, framed samples, and typed input accepted or refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.config import load_preset, preset_names
from core.config.tasks import DigitsConfig, NumbersConfig, WordsConfig
from core.storage.errors import InputError
from core.tasks import NO_SOURCE, Batch, Task, build_task, fixed_pairs, sample_distinct
from core.tasks.data import split_mask
from core.tasks.sequences import (
    UNKNOWN_SHARE,
    Digits,
    Numbers,
    SequenceTask,
    Words,
    first_occurrences,
    gather_symbols,
    source_positions,
)
from core.tasks.word_examples import WORD_EXAMPLES, WORDS
from core.text.validation import MAX_INPUT_CHARACTERS
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocab, until_eos

NUMBERS = Numbers(NumbersConfig(transform="reverse", min_length=2, max_length=6))
WITHOUT_EOS = Numbers(NumbersConfig(transform="reverse", min_length=10, max_length=10, eos_in_targets=False))
SENTENCES = Words(WordsConfig(transform="reverse", min_length=3, max_length=10))
SPLITS = ("train", "validation", "test")
TRANSFORMS = ("reverse", "copy", "sort", "deduplicate")
ROWS = st.lists(st.lists(st.integers(3, 12), max_size=9), min_size=1, max_size=6)


def digits(transform: str = "reverse", low: int = 3, high: int = 10) -> Digits:
    return Digits(DigitsConfig(transform=transform, min_length=low, max_length=high))


def sample(task: Task, count: int, split: str = "train", seed: int = 0) -> Batch:
    return task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))


def without_frame(row: list[int]) -> list[int]:
    """The symbols of a row, after checking that it is BOS, symbols, EOS, PAD."""
    end = row.index(EOS_ID)
    assert row[0] == BOS_ID
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(row[1:end])
    assert set(row[end + 1 :]) <= {PAD_ID}
    return row[1:end]


# --- transforms


def naive_positions(transform: str, row: list[int]) -> list[int]:
    """Source positions by loops: selection sort, and a list of the symbols seen."""
    if transform == "reverse":
        return [len(row) - 1 - index for index in range(len(row))]
    if transform == "copy":
        return list(range(len(row)))
    if transform == "deduplicate":
        seen: list[int] = []
        for index, symbol in enumerate(row):
            if symbol not in [row[other] for other in seen]:
                seen.append(index)
        return seen
    remaining, positions = list(range(len(row))), []
    while remaining:
        smallest = remaining[0]
        for index in remaining:
            if row[index] < row[smallest]:
                smallest = index
        positions.append(smallest)
        remaining.remove(smallest)
    return positions


class Neighbors(SequenceTask):
    """Neighboring symbols change places; the last of an odd number stays."""

    def source_positions(self, symbols):
        lengths = (symbols != PAD_ID).sum(dim=1, keepdim=True)
        index = torch.arange(symbols.shape[1]).expand_as(symbols)
        positions = torch.where((index ^ 1) < lengths, index ^ 1, index)
        return positions.masked_fill(index >= lengths, NO_SOURCE)


def test_a_subclass_rearranges_sequences_in_its_own_way():
    task = Neighbors(Vocab("abcdef"), transform="swap", min_length=2, max_length=7, candidates=["a b c"])
    assert task.answer(list("abcde")) == list("badce")
    assert task.gold_alignment(list("abcde")) == [[1], [0], [3], [2], [4]]
    pairs = task.sample(50, split="train", generator=torch.Generator().manual_seed(0))
    for src, tgt in zip(pairs.src.tolist(), pairs.tgt.tolist(), strict=True):
        source, target = (task.src_vocab.decode(until_eos(row[1:])) for row in (src, tgt))
        assert target == task.answer(source)


@given(rows=ROWS)
def test_source_positions_equal_those_of_naive_loops(rows):
    symbols = torch.tensor([row + [PAD_ID] * (9 - len(row)) for row in rows])
    for transform in TRANSFORMS:
        positions = source_positions(transform, symbols)
        answers = gather_symbols(symbols, positions)
        for row, row_positions, answer in zip(rows, positions.tolist(), answers.tolist(), strict=True):
            expected = naive_positions(transform, row)
            assert row_positions == expected + [-1] * (9 - len(expected))
            assert answer == [row[index] for index in expected] + [PAD_ID] * (9 - len(expected))


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4))
def test_first_occurrences_equal_those_of_a_naive_loop(rows):
    expected = [[value not in row[:index] for index, value in enumerate(row)] for row in rows]
    assert first_occurrences(torch.tensor(rows)).tolist() == expected


@pytest.mark.parametrize(
    ("transform", "typed", "answer", "gold_alignment"),
    [
        ("sort", "48292", "22489", [[2, 4], [2, 4], [0], [1], [3]]),
        ("deduplicate", "48482", "482", [[0, 2], [1, 3], [4]]),
        ("deduplicate", "1111", "1", [[0, 1, 2, 3]]),
        ("sort", "1111", "1111", [[0, 1, 2, 3]] * 4),
        ("reverse", "122", "221", [[2], [1], [0]]),  # the position decides, not the symbol
        ("copy", "122", "122", [[0], [1], [2]]),
    ],
)
def test_answer_and_gold_alignment(transform, typed, answer, gold_alignment):
    task = digits(transform)
    symbols = task.tokenize(typed)
    assert "".join(task.answer(symbols)) == answer
    assert task.gold_alignment(symbols) == gold_alignment


@given(symbols=st.lists(st.sampled_from("0123456789"), min_size=1, max_size=30))
def test_reversed_and_copied_answers_align_one_to_one(symbols):
    assert digits("reverse").answer(symbols) == symbols[::-1]
    assert digits("copy").answer(symbols) == symbols
    for task in (digits("reverse"), digits("copy")):
        positions = [position for (position,) in task.gold_alignment(symbols)]
        assert sorted(positions) == list(range(len(symbols)))
        assert [symbols[position] for position in positions] == task.answer(symbols)


# --- samples


@pytest.mark.parametrize("split", SPLITS)
def test_samples_are_framed_and_have_correct_answers(split):
    ranges = ((3, 10), (1, 6), (4, 4))
    tasks = [digits(transform, low, high) for transform in TRANSFORMS for low, high in ranges]
    for task in (*tasks, NUMBERS, SENTENCES):
        batch = sample(task, 100, split)
        assert batch.src.shape == batch.tgt.shape == (100, task.max_length + 2)
        assert batch.src.dtype == torch.int64
        for src, tgt in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
            symbols = task.src_vocab.decode(without_frame(src))
            assert task.min_length <= len(symbols) <= task.max_length
            assert task.tgt_vocab.decode(without_frame(tgt)) == task.answer(symbols)


def test_decoder_input_is_the_target_shifted_right():
    batch = sample(digits(), 5)
    assert (batch.tgt_in[:, 0] == BOS_ID).all()
    assert torch.equal(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])
    assert torch.equal(batch[1:3].src, batch.src[1:3])
    assert torch.equal(batch[torch.tensor([4, 0])].tgt, batch.tgt[[4, 0]])


def test_lengths_and_symbols_are_uniform():
    for split in SPLITS:
        batch = sample(digits(), 8_000, split)
        lengths = (batch.src >= 3).sum(1)
        shares = torch.bincount(lengths, minlength=11)[3:].float() / 8_000
        assert shares == pytest.approx(torch.full((8,), 1 / 8), abs=0.025)
        tokens = torch.bincount(batch.src[batch.src >= 3], minlength=13)[3:].float()
        assert (tokens / tokens.sum()) == pytest.approx(torch.full((10,), 0.1), abs=0.015)
    assert digits().sampling == "length uniform in 3–10, each symbol uniform among 10"


def test_every_transform_has_the_same_inputs():
    sources = [sample(digits(transform), 50).src for transform in TRANSFORMS]
    assert all(torch.equal(source, sources[0]) for source in sources)


def test_targets_without_eos_are_otherwise_the_same():
    for split in SPLITS:
        batch = sample(WITHOUT_EOS, 200, split)
        assert (batch.src[:, -1] == EOS_ID).all()
        assert not (batch.tgt == EOS_ID).any()
        assert torch.equal(batch.tgt[:, 1:-1], batch.src[:, 1:-1].flip(1))
        assert (batch.tgt[:, -1] == PAD_ID).all()


def test_vocabulary_sizes():
    assert (len(NUMBERS.src_vocab), len(SENTENCES.src_vocab)) == (20, 38)
    assert NUMBERS.src_vocab.symbols == tuple(str(number) for number in range(1, 18))
    assert len(set(WORDS)) == 34


def test_smaller_base_has_fewer_digits():
    task = Digits(DigitsConfig(transform="reverse", min_length=1, max_length=12, base=2))
    assert task.src_vocab.symbols == ("0", "1")
    pairs = sample_distinct(task, 100, split="train", generator=torch.Generator().manual_seed(0))
    assert pairs.src.max() == task.src_vocab.encode(["1"])[0]
    assert task.tokenize("0110") == ["0", "1", "1", "0"]
    with pytest.raises(InputError, match="'2' at position 3 is not one of 0 1"):
        task.tokenize("012")
    for base in range(2, 11):
        based = Digits(DigitsConfig(transform="reverse", min_length=1, max_length=12, base=base))
        assert [based.tokenize(text) for text in based.examples]


# --- unknown words


def test_a_share_of_training_words_is_unk_and_no_held_out_word():
    batch = sample(SENTENCES, 5_000)
    untrained = Words(WordsConfig(transform="reverse", min_length=3, max_length=10, unk_in_training=False))
    assert not (sample(untrained, 2_000).src == UNK_ID).any()
    words = (batch.src > EOS_ID).sum()
    unknown = (batch.src == UNK_ID).sum()
    assert (unknown / words).item() == pytest.approx(UNKNOWN_SHARE, abs=0.004)
    assert unknown == (batch.tgt == UNK_ID).sum()
    for split in ("validation", "test"):
        assert not (sample(SENTENCES, 2_000, split).src == UNK_ID).any()


def test_training_sentences_without_unk_are_of_the_training_split():
    rows = fixed_pairs(SENTENCES, 3_000, split="train").src[:, 1:]
    symbols = rows.masked_fill(rows == EOS_ID, PAD_ID)
    known = ~(symbols == UNK_ID).any(dim=1)
    assert split_mask(symbols[known], "train").all()


def test_an_unknown_word_is_unk():
    assert SENTENCES.src_vocab.encode(SENTENCES.tokenize("the zebra sat"))[1] == UNK_ID


# --- typed input


def test_digits_may_be_typed_with_or_without_separators():
    for text in ("4829", "4 8 2 9", "4,8,2,9", " 48, 29\n", "4\t8,,2 9"):
        assert digits().tokenize(text) == ["4", "8", "2", "9"], text


def test_words_ignore_case_and_punctuation():
    for text, words in (
        ("the cat sat", ["the", "cat", "sat"]),
        ("  The CAT, sat. ", ["the", "cat", "sat"]),
        ("cat", ["cat"]),
        ("the the the", ["the", "the", "the"]),
        ("the\ncat\tsat!", ["the", "cat", "sat"]),
    ):
        assert SENTENCES.tokenize(text) == words


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (digits(), "", "input is empty; an example is: 4 8 2 9"),
        (digits(), " , ,\n", "input is empty"),
        (digits(), "48x9", "'x' at position 3 is not one of 0 1 2"),
        (digits(), "4-8", "'-' at position 2"),
        (digits(), "<EOS>", "'<' at position 1"),
        (digits(), "٤", "'٤' at position 1"),  # an Arabic digit
        (digits(), "4２", "'２' at position 2"),  # a full-width digit
        (digits(), "²", "'²' at position 1"),
        (digits(), "1" * (MAX_INPUT_CHARACTERS + 1), f"input has {MAX_INPUT_CHARACTERS + 1} characters"),
        (NUMBERS, "", "input is empty; an example is: 5 12 7 3 9 11"),
        (NUMBERS, "5 18", "'18' at position 2 is not one of 1 2 3"),
        (NUMBERS, "0", "'0' at position 1"),
        (NUMBERS, "05", "'05' at position 1"),
        (NUMBERS, "5127", "'5127' at position 1"),
        (NUMBERS, "<BOS> 5", "'<BOS>' at position 1"),
        (NUMBERS, "5 <PAD>", "'<PAD>' at position 2"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_invalid_input_is_refused_by_position(task, text, message):
    with pytest.raises(InputError, match=message):
        task.tokenize(text)


def test_examples_have_training_lengths():
    ranges = ((3, 10), (1, 3), (6, 8), (12, 14), (5, 5))
    tasks = [digits(low=low, high=high) for low, high in ranges]
    configs = {load_preset(name).task for name in preset_names()}
    for task in (*tasks, *map(build_task, configs)):
        assert task.examples
        for example in task.examples[getattr(task, "markers_as_data", False) :]:  # the first one is shorter on purpose
            assert task.min_length <= len(task.tokenize(example)) <= task.max_length, example


def test_the_examples_of_the_words_are_the_ten_documented_ones_first():
    sentences = [example.sentence for example in WORD_EXAMPLES]
    assert len(sentences) == 10
    assert SENTENCES.examples[:10] == tuple(sentences)
    assert [example.sentence for example in WORD_EXAMPLES if example.is_match] == [sentences[2], sentences[4]]
    for example in WORD_EXAMPLES:
        assert example.reference.split() == SENTENCES.answer(SENTENCES.tokenize(example.sentence))
        assert set(example.output.split()) <= set(WORDS)
