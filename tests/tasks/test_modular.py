"""Arithmetic modulo a prime: answers counted in another way, splits that share no pair, and input that is refused."""

import re
from collections import Counter

import pytest
import torch

from core.config import load_preset
from core.config.preset import ConfigError
from core.config.tasks import ModularConfig
from core.storage.errors import InputError
from core.tasks import build_task
from core.tasks.modular import Modular, cyclic_order
from core.tasks.pairs import SPLITS


def modular(**options) -> Modular:
    return build_task(ModularConfig(**options))


def rows_of(task: Modular) -> list[tuple[int, int, int, str]]:
    """Every pair of a table: both numbers, the result, and the split."""
    table = task.table
    return [
        (int(a), int(b), int(task.tgt_vocab.decode(table.tgt.row(row))[0]), SPLITS[split])
        for row, split in enumerate(table.split.tolist())
        for a, _, b in [task.src_vocab.decode(table.src.row(row))]
    ]


def by_counting(a: int, b: int, operation: str, prime: int) -> int:
    """Count on a clock of ``prime`` hours, one hour at a time: another way than the task's."""
    hour = 0 if operation == "*" else a
    for _ in range(a * b if operation == "*" else b):
        hour = hour - 1 if operation == "-" else hour + 1
        hour = 0 if hour == prime else prime - 1 if hour < 0 else hour
    return hour


@pytest.mark.parametrize("operation", ["+", "-", "*"])
def test_every_pair_is_there_once_with_the_answer_that_counting_gives(operation):
    task = modular(prime=13, operation=operation)
    rows = rows_of(task)
    assert [(a, b) for a, b, *_ in rows] == [(a, b) for a in range(13) for b in range(13)]
    for a, b, result, _ in rows:
        assert result == by_counting(a, b, operation, 13)
        assert task.answer(task.tokenize(f"{a}{operation}{b}")) == [str(result)]
    counts = Counter(result for _, _, result, _ in rows)
    expected = dict.fromkeys(range(13), 12) | {0: 25} if operation == "*" else dict.fromkeys(range(13), 13)
    assert counts == expected


@pytest.mark.parametrize("split_by", ["pair", "unordered-pair"])
def test_splits_have_their_shares_and_no_pair_in_common(split_by):
    task = modular(prime=97, training_share=0.4, split_by=split_by)
    rows = rows_of(task)
    sizes = Counter(split for *_, split in rows)
    slack = {"abs": 0 if split_by == "pair" else 60}  # pairs of equal numbers have no mirror image
    assert sizes["train"] == pytest.approx(3_764, **slack)
    assert sizes["validation"] == pytest.approx(1_411, **slack)
    assert sizes["test"] == pytest.approx(4_234, **slack)
    sources = {
        split: {tuple(row) for row in task.all_pairs(split)[torch.arange(size)].src.tolist()}
        for split, size in sizes.items()
    }
    assert not sources["train"] & sources["test"]
    assert not sources["train"] & sources["validation"]
    assert not sources["validation"] & sources["test"]
    assert sum(map(len, sources.values())) == 97**2


def test_mirror_images_are_in_one_split_or_counted_apart():
    together = {(a, b): split for a, b, _, split in rows_of(modular(split_by="unordered-pair"))}
    assert all(split == together[b, a] for (a, b), split in together.items())
    assert modular(split_by="unordered-pair").table.rows_by_set() == {}
    apart = modular()
    split_of = {(a, b): split for a, b, _, split in rows_of(apart)}
    in_training = [pair for pair, split in split_of.items() if split == "test" and split_of[pair[::-1]] == "train"]
    sets = apart.table.rows_by_set()
    assert len(sets["mirror image trained on"]) == len(in_training) > 0
    assert sum(map(len, sets.values())) == list(split_of.values()).count("test")


def test_powers_of_a_root_turn_products_into_sums():
    order = cyclic_order(ModularConfig(prime=13, operation="*"))
    assert sorted(order) == list(range(1, 13))
    log = {number: at for at, number in enumerate(order)}
    for a in range(1, 13):
        for b in range(1, 13):
            assert log[a * b % 13] == (log[a] + log[b]) % 12
    task = modular(prime=13, operation="*")
    assert task.src_vocab.decode(list(task.cyclic_tokens)) == list(map(str, order))
    assert modular(prime=13).src_vocab.decode(list(modular(prime=13).cyclic_tokens)) == list(map(str, range(13)))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("3", "'3' must be two numbers below 97 and a +, such as 3 + 5"),
        ("3 +", "must be two numbers"),
        ("3 + 5 + 7", "must be two numbers"),
        ("+ + +", "must be two numbers"),
        ("3 5 +", "must be two numbers"),
        ("3 - 5", "'-' at position 2 is not one of"),
        ("97 + 1", "'97' at position 1 is not one of"),
    ],
)
def test_other_input_is_refused(text, named):
    with pytest.raises(InputError, match=re.escape(named)):
        modular().tokenize(text)


def test_a_modulus_that_is_no_prime_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"task\.prime=91 must be a prime number, such as 53, 97 or 113"):
        load_preset("grokking").with_changes({"task.prime": 91})
