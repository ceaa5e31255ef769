"""SCAN: counts of the paper, answers counted in another way, and splits that hold out what they say."""

import re
from itertools import product

import pytest
import torch

from core.config.tasks import ScanConfig
from core.storage.errors import InputError
from core.tasks import build_task
from core.tasks.pairs import SPLITS
from core.tasks.scan import EXAMPLE, Scan, commands


def scan(**options) -> Scan:
    return build_task(ScanConfig(**options))


def by_rewriting(command: str) -> list[str]:
    """Interpret a command by rewriting its text, from the inside out: another way than the task's."""
    turn = {side: f"I_TURN_{side.upper()}" for side in ("left", "right")}
    for verb, side in product(("walk", "look", "run", "jump", "turn"), turn):
        act = "" if verb == "turn" else f"I_{verb.upper()} "
        command = command.replace(f"{verb} around {side}", f"[{(turn[side] + ' ' + act) * 4}]")
        command = command.replace(f"{verb} opposite {side}", f"[{turn[side]} {turn[side]} {act}]")
        command = command.replace(f"{verb} {side}", f"[{turn[side]} {act}]")
    command = re.sub(r"(?<![_A-Z])(walk|look|run|jump)", lambda it: f"[I_{it[0].upper()} ]", command)
    command = re.sub(r"(\[[^]]*\]) (twice|thrice)", lambda it: it[1] * (2 if it[2] == "twice" else 3), command)
    first, after, second = command.partition(" after ")
    return re.findall("I_[A-Z_]+", second + first if after else command)


@pytest.mark.parametrize(
    ("split", "training", "test"),  # pairs of the official files
    [
        ("simple", 16_728, 4_182),
        ("length", 16_990, 3_920),
        ("add-jump", 14_670, 7_706),
        ("add-turn-left", 21_890, 1_208),
    ],
)
def test_splits_have_their_official_sizes_and_share_no_command(split, training, test):
    task = scan(split=split)
    is_test = task.table.split == SPLITS.index("test")
    assert (int((~is_test).sum()), int(is_test.sum())) == (training, test)
    assert not set(task.table.keys[is_test].tolist()) & set(task.table.keys[~is_test].tolist())
    assert len(task.all_pairs("validation")) == pytest.approx(0.02 * training, rel=0.2)


def test_every_command_has_the_actions_that_rewriting_gives_it():
    task = scan()
    assert len(set(commands())) == 20_910
    for command in commands():
        assert task.answer(command) == by_rewriting(" ".join(command)), command


def test_what_a_split_holds_out_is_not_in_training():
    jumps = [" ".join(command) for command, held in commands_of(scan(split="add-jump")) if not held]
    assert jumps.count("jump") == 1_467
    assert not [each for each in jumps if "jump" in each and each != "jump"]
    lengths = {held: set() for held in (False, True)}
    short = scan(split="length", max_training_actions=16)
    for command, held in commands_of(short):
        lengths[held].add(len(short.answer(command)))
    assert max(lengths[False]) == 16 < min(lengths[True])
    names = short.breakdown(1_000, generator=torch.Generator().manual_seed(0)).groups
    assert list(names) == [f"{length} actions" for length in sorted(lengths[True])]


def commands_of(task: Scan) -> list[tuple[list[str], bool]]:
    """Return every command of a table, and whether it is held out for testing."""
    table = task.table
    return [
        (task.src_vocab.decode(table.src.row(row)), bool(split == SPLITS.index("test")))
        for row, split in enumerate(table.split.tolist())
    ]


def test_an_action_is_aligned_with_the_word_that_names_it():
    command = ["turn", "opposite", "left", "after", "jump", "around", "right", "twice"]
    aligned = scan().gold_alignment(command)
    assert [command[at] for (at,) in aligned] == ["right", "jump"] * 8 + ["left"] * 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("jump and", "''"),
        ("left turn", ""),
        ("walk opposite and run", "'walk opposite'"),
        ("turn", ""),
        ("turn around around left", ""),
        ("walk and run and look", "'run and look'"),
        ("twice", "''"),
    ],
)
def test_what_the_grammar_does_not_have_is_refused_with_the_part_that_is_wrong(text, named):
    where = f": {named}" if named else ""
    with pytest.raises(InputError, match=f"is not a command of SCAN{where}; one is '{EXAMPLE}'$"):
        scan().tokenize(text)
    assert scan().tokenize(EXAMPLE)
