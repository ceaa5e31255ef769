"""PCFG SET: answers found in another way, splits of the official sizes, and what a split holds out."""

import re
from functools import cache
from itertools import chain

import pytest
import torch

from core.config.tasks import PcfgConfig
from core.storage.errors import InputError
from core.tasks import build_task
from core.tasks.pairs import SPLITS
from core.tasks.pcfg import FUNCTION_COUNTS, LETTERS, Pcfg

PAIRS = ("swap_first_last repeat", "append remove_second", "repeat remove_second", "append swap_first_last")
FUNCTION = re.compile(r"[a-z_]+")


def pcfg(split: str = "random") -> Pcfg:
    return build_task(PcfgConfig(split=split))


@cache
def all_expressions() -> list[str]:
    """Return all expressions as text: every split has the same ones, in the same order."""
    task = pcfg()
    return [" ".join(task.src_vocab.decode(task.table.src.row(row))) for row in range(len(task.table.split))]


def expressions(task: Pcfg, *splits: str) -> list[str]:
    """Return the expressions of some splits as text."""
    numbers = torch.tensor([SPLITS.index(split) for split in splits])
    everything = all_expressions()
    return [everything[row] for row in torch.isin(task.table.split, numbers).nonzero().flatten().tolist()]


def by_stack(expression: str) -> list[str]:
    """Interpret an expression from right to left: a function takes what stands on the stack."""
    stack: list[list[str]] = []
    for part in reversed(re.findall(r"[a-z_]+|,|[A-Z]\d+(?: [A-Z]\d+)*", expression)):
        match part:
            case ",":
                continue
            case "copy":
                continue
            case "reverse":
                stack[-1].reverse()
            case "shift":
                stack[-1].append(stack[-1].pop(0))
            case "swap_first_last":
                stack[-1][0], stack[-1][-1] = stack[-1][-1], stack[-1][0]
            case "repeat":
                stack[-1].extend([*stack[-1]])
            case "echo":
                stack[-1].append(stack[-1][-1])
            case "append" | "prepend" | "remove_first" | "remove_second":
                first, second = stack.pop(), stack.pop()
                parts = {"append": [first, second], "prepend": [second, first]}.get(part)
                stack.append([*chain(*(parts or ([second] if part == "remove_first" else [first])))])
            case _:
                stack.append(part.split())
    (answer,) = stack
    return answer


def test_expressions_give_what_a_stack_gives():
    task = pcfg()
    for row, expression in [*enumerate(all_expressions())][::10]:  # about 9,500
        assert task.tgt_vocab.decode(task.table.tgt.row(row)) == by_stack(expression), expression


@pytest.mark.parametrize(
    ("text", "expected"),  # the first is of the official files, the next three are of the paper, with numbers
    [
        ("reverse copy O14 O4 C12 J14 W3", "W3 J14 C12 O4 O14"),
        ("repeat A1 B1 C1", "A1 B1 C1 A1 B1 C1"),
        ("echo remove_first D1 K1 , E1 F1", "E1 F1 F1"),
        ("append swap_first_last F1 G1 H1 , repeat I1 J1", "H1 G1 F1 I1 J1 I1 J1"),
        ("shift A1 B1 C1", "B1 C1 A1"),
        ("prepend remove_second A1 B1,C1 D1,echo E1 F1", "E1 F1 F1 A1 B1"),
    ],
)
def test_typed_expressions_give_their_strings(text, expected):
    task = pcfg()
    assert task.answer(task.tokenize(text)) == expected.split()
    assert task.references(task.tokenize(text)) == [expected.split()]


def test_a_letter_is_aligned_with_where_it_comes_from():
    task, words = pcfg(), ["prepend", "echo", "A1", "B2", ",", "reverse", "C3", "B2"]
    assert task.answer(words) == ["B2", "C3", "A1", "B2", "B2"]
    assert task.gold_alignment(words) == [[7], [6], [2], [3], [3]]


def test_no_expression_and_no_string_occurs_twice():
    everything = all_expressions()
    assert len(set(everything)) == len(everything) == 97_203
    strings = re.findall(r"[A-Z]\d+(?: [A-Z]\d+)+", "\n".join(everything))
    assert len(set(strings)) == len(strings)
    assert {2, 3, 4, 5} == {len(string.split()) for string in strings}
    for split in ("systematicity", "productivity"):  # of the same expressions
        assert torch.equal(pcfg(split).table.keys, pcfg().table.keys)


def test_the_random_split_has_the_official_sizes_and_distribution():
    task = pcfg()
    sizes = [len(expressions(task, split)) for split in SPLITS]
    assert sizes == [82_622, 4_860, 9_721]
    functions = re.findall(r"[a-z_]+", "\n".join(all_expressions()))
    assert set(functions) == {*task.src_vocab.symbols} - {",", *LETTERS}
    assert len(LETTERS) == 520
    unary = [each for each in functions if each in ("copy", "reverse", "shift", "swap_first_last", "repeat", "echo")]
    assert len(unary) / len(functions) == pytest.approx(0.603, abs=0.02)  # of the official test set, as those below
    assert task.table.src.lengths.float().mean().item() == pytest.approx(18.2, abs=0.5)
    assert task.table.tgt.lengths.float().mean().item() == pytest.approx(9.3, abs=0.6)
    assert task.table.widths == (71, 128)
    assert sum(FUNCTION_COUNTS) == 10_000


def test_systematicity_tests_pairs_of_functions_that_training_does_not_combine():
    task = pcfg("systematicity")
    held_out = re.compile("|".join(rf"(?:^| ){pair} " for pair in PAIRS))
    trained = expressions(task, "train", "validation")
    assert not [each for each in trained if held_out.search(each)]
    assert all(held_out.search(each) for each in expressions(task, "test"))
    assert 9_500 < len(expressions(task, "test")) < 11_500  # officially, 10,175
    for pair in PAIRS:  # both functions are trained on, also in one expression
        first, second = pair.split()
        assert sum(first in each and second in each for each in trained) > 1_000
    groups = task.breakdown(400, generator=torch.Generator().manual_seed(0)).groups
    assert {name: len(rows) for name, rows in groups.items()} == dict.fromkeys(PAIRS, 100)


def test_productivity_tests_more_functions_than_training_has():
    task = pcfg("productivity")
    counts = {split: {len(FUNCTION.findall(each)) for each in expressions(task, split)} for split in SPLITS}
    assert counts["train"] == counts["validation"] == set(range(1, 9))
    assert min(counts["test"]) == 9
    assert max(counts["test"]) > 20
    assert 10_500 < len(expressions(task, "test")) < 12_500  # officially, 11,333
    names = task.breakdown(1_000, generator=torch.Generator().manual_seed(0)).groups
    assert list(names) == [*(f"{count} functions" for count in range(9, 16)), "16 or more functions"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A1 B1", "'A1' is where a function should be"),
        ("copy", "the end is where a function or a letter should be"),
        ("copy A1", "the end is where another letter should be"),
        ("append A1 B1 C1", "the end is where a comma should be"),
        ("append A1 B1 , , C1 D1", "',' is where a function or a letter should be"),
        ("copy A1 B1 , C1 D1", "',' is where the end should be"),
        ("copy A1 B1 C1 D1 E1 F1", "'F1' is where the end should be"),
        ("append A1 copy B1 C1 , D1 E1", "'copy' is where another letter should be"),
        ("swap A1 B1", "'swap' at position 1 is not one of"),
        ("copy A21 B1", "'A21' at position 2 is not one of"),
        ("repeat " * 30 + "A1 B1", "has, or gives, a string of more than 128 letters"),
        ("copy " * 70 + "A1 B1", "has 72 tokens; the longest expression has 71"),
    ],
)
def test_what_is_no_expression_is_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        pcfg().tokenize(text)
