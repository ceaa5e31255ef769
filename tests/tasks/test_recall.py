"""Induction and associative recall: answers counted again, what is held out, and how typed text is read."""

from collections import Counter

import pytest
import torch

from core.config import ConfigError, load_preset
from core.config.tasks import InductionConfig, RecallConfig
from core.storage.errors import InputError
from core.tasks import build_task, fixed_pairs
from core.text.vocab import EOS_ID

INDUCTION = InductionConfig(min_letters=3, max_letters=9, num_letters=12)
RECALL = RecallConfig(min_pairs=2, max_pairs=5, queries=2, num_keys=8, num_values=4)
VALUES = RecallConfig(min_pairs=3, max_pairs=6, queries=3, answer="values")
LARGE = RecallConfig(min_pairs=8, max_pairs=40, queries=8, num_keys=64, num_values=64)
EVERY = pytest.mark.parametrize(
    "config", [INDUCTION, RECALL, VALUES, LARGE], ids=["induction", "recall", "values", "large"]
)
SPLITS = ("train", "validation", "test")


def drawn(config, count: int, split: str, seed: int = 0) -> list[tuple[list[str], list[str]]]:
    """Draw inputs and answers, as symbols."""
    task = build_task(config)
    batch = task.sample(count, split=split, generator=torch.Generator().manual_seed(seed))
    assert batch.src.shape == (count, config.longest_source + 2)
    assert batch.tgt.shape == (count, config.longest_answer + 2)
    return [
        tuple(task.src_vocab.decode(row[1 : row.index(EOS_ID)]) for row in pair)
        for pair in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True)
    ]


def parts(config, symbols: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """What is held out of an input, and what it asks for."""
    if isinstance(config, InductionConfig):
        return tuple(symbols[:-2]), symbols[-1:]
    end = len(symbols) - config.queries
    return tuple(sorted(" ".join(symbols[at : at + 2]) for at in range(0, end, 2))), symbols[end:]


def counted(config, symbols: list[str]) -> list[str]:
    """The answer, counted by another way: in the text."""
    held, asked = parts(config, symbols)
    if isinstance(config, InductionConfig):
        return [asked[0], *" ".join([*held, "."]).split(f"{asked[0]} ")[1].split()]
    value_of = dict(pair.split() for pair in held)
    if config.answer == "pairs":
        return " ".join(f"{each} {value_of[each]}" for each in asked).split()
    return [value_of[each] for each in asked]


@EVERY
@pytest.mark.parametrize("split", SPLITS)
def test_answers_equal_those_counted_again(config, split):
    task = build_task(config)
    for symbols, answer in drawn(config, 400, split):
        assert answer == counted(config, symbols) == task.answer(symbols)
        gold = task.gold_alignment(symbols)
        assert all({symbols[at] for at in of_token} == {token} for of_token, token in zip(gold, answer, strict=True))
        assert task.tokenize(task.source_text(symbols)) == symbols
        assert task.split_of(symbols) == split


def test_the_gold_alignment_is_the_key_and_the_value_after_it():
    symbols = ["a", "4", "b", "3", "c", "4", "c", "a"]
    assert build_task(RecallConfig(queries=2)).gold_alignment(symbols) == [[4, 6], [5], [0, 7], [1]]
    assert build_task(RecallConfig(queries=2, answer="values")).gold_alignment(symbols) == [[5], [1]]
    assert build_task(InductionConfig()).gold_alignment(["c", "a", "d", "b", ".", "a"]) == [[1, 5], [2], [3], [4]]


@EVERY
def test_no_test_item_is_in_training_in_another_order_or_with_another_query(config):
    held = {split: {parts(config, symbols)[0] for symbols, _ in drawn(config, 4_000, split)} for split in SPLITS}
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not held[one] & held[other]


def test_orders_and_queries_of_the_same_pairs_are_in_one_split():
    task = build_task(RECALL)
    texts = ("a 1 b 2 c 3 a b", "c 3 a 1 b 2 a b", "b 2 c 3 a 1 c a")
    assert len({task.split_of(text.split()) for text in texts}) == 1
    others = {task.split_of(f"a {a} b {b} c {c} a b".split()) for a in range(4) for b in range(4) for c in range(4)}
    assert others == set(SPLITS)


def test_sizes_and_positions_are_uniform():
    recall = [symbols for symbols, _ in drawn(RECALL, 6_000, "train")]
    sizes = Counter((len(symbols) - 2) // 2 for symbols in recall)
    assert set(sizes) == {2, 3, 4, 5}
    longest = [symbols for symbols in recall if len(symbols) == 12]
    for place in range(5):  # each pair is queried first as often
        asked = sum(symbols[10] == symbols[2 * place] for symbols in longest)
        assert asked / len(longest) == pytest.approx(0.2, abs=0.04)
    of_nine = [symbols.index(symbols[-1]) for symbols, _ in drawn(INDUCTION, 6_000, "train") if len(symbols) == 11]
    assert set(of_nine) == set(range(9))
    for times in Counter(of_nine).values():
        assert times / len(of_nine) == pytest.approx(1 / 9, abs=0.04)


def test_lengths_reach_twice_as_many_letters_or_pairs_as_in_training_or_all():
    assert build_task(InductionConfig(max_letters=12)).lengths == range(3, 2 * 12 + 3)
    assert build_task(InductionConfig(max_letters=20)).lengths == range(3, 26 + 3)
    assert build_task(RecallConfig(max_pairs=8, queries=3)).lengths == range(2 * 3 + 3, 2 * 16 + 3 + 1, 2)
    assert build_task(RecallConfig(max_pairs=20, queries=3)).lengths == range(2 * 3 + 3, 2 * 26 + 3 + 1, 2)


@EVERY
def test_inputs_of_one_length_are_held_out_at_every_length(config):
    task = build_task(config)
    for length in (task.lengths[0], task.min_length, task.max_length, task.lengths[-1]):
        batch = task.sample_of_length(length, 20, generator=torch.Generator().manual_seed(1))
        assert len(batch)
        for source, target in zip(batch.src.tolist(), batch.tgt.tolist(), strict=True):
            symbols = task.src_vocab.decode(source[1 : source.index(EOS_ID)])
            assert len(symbols) == length
            assert task.src_vocab.decode(target[1 : target.index(EOS_ID)]) == counted(config, symbols)
            assert task.split_of(symbols) in ("test", None)


@pytest.mark.parametrize("name", ["recall", "induction"])
def test_examples_can_be_typed_and_are_like_training(name):
    task = build_task(load_preset(name).task)
    for example in task.examples:
        symbols = task.tokenize(example)
        assert task.answer(symbols)
        assert task.note(symbols) == ""
    assert len(fixed_pairs(task, 1_000, split="test")) == 1_000


@pytest.mark.parametrize(
    ("config", "text", "symbols"),
    [
        (RECALL, "A4b3,B", ["a", "4", "b", "3", "b"]),
        (RecallConfig(num_values=20), "a14 b3 b", ["a", "14", "b", "3", "b"]),
        (RecallConfig(num_keys=60), "aa 4 b3 aa", ["aa", "4", "b", "3", "aa"]),
        (InductionConfig(), "CADB. A", ["c", "a", "d", "b", ".", "a"]),
    ],
)
def test_typed_text_is_read(config, text, symbols):
    config = config.model_copy(update={"num_values": max(config.num_values, 5)}) if config is RECALL else config
    assert build_task(config).tokenize(text) == symbols


@pytest.mark.parametrize(
    ("config", "text", "message"),
    [
        (RECALL, "a 1 b 2 c", "asks for c, which it pairs with no value"),
        (RECALL, "a 1 a 2 a", "pairs key a with more than one value"),
        (RECALL, "a 1 b 2", "must be pairs of a key and a value, then keys to recall"),
        (RECALL, "a b 1 a", "must be pairs of a key and a value, then keys to recall"),
        (RECALL, "1 a 2 b a", "must be pairs of a key and a value, then keys to recall"),
        (RECALL, "a b", "must be pairs of a key and a value, then keys to recall"),
        (RECALL, "a 9 a", "'9' at position 2 is not one of"),
        (INDUCTION, "a b c b", "must be letters, a full stop and one of the letters, such as a b c . b"),
        (INDUCTION, "a b . c", "must be letters, a full stop and one of the letters"),
        (INDUCTION, "a", "must be letters, a full stop and one of the letters"),
        (INDUCTION, ". a . a", "must be letters, a full stop and one of the letters"),
        (INDUCTION, "a b a . b", "has a more than once before the full stop"),
    ],
)
def test_other_text_is_refused(config, text, message):
    with pytest.raises(InputError, match=message):
        build_task(config).tokenize(text)


def test_notes_report_what_training_did_not_have():
    task = build_task(RECALL)
    assert task.note(task.tokenize("a1b2 a")) == "keys to recall: 1; the training inputs have 2"
    assert task.note(task.tokenize("a1b2c3d0e1f2 a b")) == "pairs: 6; the training inputs have 2–5"
    assert task.note(task.tokenize("a1b2 a b")) == ""


@pytest.mark.parametrize(
    ("preset", "changes", "message"),
    [
        ("recall", {"task.min_pairs": 9}, "task.min_pairs=9 must not be above task.max_pairs=8"),
        ("recall", {"task.num_keys": 7}, "task.max_pairs=8 must not be above task.num_keys=7"),
        ("recall", {"task.queries": 5}, "task.queries=5 must not be above task.min_pairs=4"),
        (
            "recall",
            {"task.min_pairs": 4, "task.max_pairs": 4, "task.num_keys": 4, "task.num_values": 4},
            "only 256 different inputs",
        ),
        ("induction", {"task.min_letters": 13}, "task.min_letters=13 must not be above task.max_letters=12"),
        ("induction", {"task.num_letters": 11}, "task.max_letters=12 must not be above task.num_letters=11"),
        ("induction", {"task.num_letters": 4, "task.max_letters": 4}, "allow only 24 different inputs"),
    ],
)
def test_settings_that_no_input_can_have_are_refused(preset, changes, message):
    with pytest.raises(ConfigError, match=message):
        load_preset(preset).with_changes(changes)
