"""Failure gallery: a run's wrong outputs grouped by outcome and by first wrong token, with examples of each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd

from core.evaluation.answers import answer_parts, join_parts
from core.evaluation.by_length import held_out_by_length, within_max_seq_len
from core.evaluation.failures import OUTCOMES, first_difference
from core.interpret.trained import Trained
from core.storage.errors import InputError
from core.tasks import Batch, fixed_pairs
from core.text.pieces import sentence_of

FailureSource = Literal["held out", "longer"]
EXAMPLES_PER_GROUP = 20  # enough to see what they have in common
MAX_POSITION = 12  # outputs that go wrong at a later token form one group


@dataclass(frozen=True)
class FailureGroup:
    """Failures that have something in common.

    Attributes:
        name: their outcome, or the position of their first wrong token.
        meaning: explanation of the name, or "".
        count: number of failures.
        examples: the first of them, rows of ``answer_table``.
    """

    name: str
    meaning: str
    count: int
    examples: pd.DataFrame


@dataclass(frozen=True)
class Gallery:
    """A run's failures.

    Attributes:
        inputs: number of inputs decoded.
        wrong: number of wrong outputs.
        by_outcome: the largest group first; see ``failures.OUTCOMES``.
        by_position: by the first token that is wrong, missing or superfluous, in order.
    """

    inputs: int
    wrong: int
    by_outcome: tuple[FailureGroup, ...]
    by_position: tuple[FailureGroup, ...]


def find_failures(loaded: Trained, *, source: FailureSource, sequences: int) -> Iterator[float | Gallery]:
    """Decode inputs greedily, each separately, and collect the failures.

    Args:
        source: the test set, or inputs longer than in training, up to twice as long.
        sequences: number of test inputs; of longer inputs, there are 100 of each length.

    Yields:
        The finished fraction of the work, 0-1, and finally the gallery.

    Raises:
        InputError: the task has no single reference answer, or no longer inputs that the model can read.
    """
    sets = _inputs(loaded, source, sequences)
    parts, done, total = [], 0, sum(map(len, sets))
    for pairs in sets:
        first = done
        for part in answer_parts(loaded.model, loaded.task, pairs):
            parts.append(part.set_index(part.index + first))
            done += len(part)
            yield done / total
    yield gallery_of(join_parts(parts))


def gallery_of(table: pd.DataFrame) -> Gallery:
    """Group the wrong rows of an ``answer_table``."""
    wrong = table[~table.is_exact]
    outcomes: Iterable[tuple[Any, pd.DataFrame]] = wrong.groupby("outcome")
    by_outcome = [
        FailureGroup(outcome, OUTCOMES[outcome], len(rows), rows.head(EXAMPLES_PER_GROUP)) for outcome, rows in outcomes
    ]
    positions = wrong.assign(position=[_first_wrong_position(row) for row in wrong.itertuples()]).groupby("position")
    by_position = [
        FailureGroup(_position_name(position), "", len(rows), rows.head(EXAMPLES_PER_GROUP))
        for position, rows in positions
    ]
    by_outcome.sort(key=lambda group: -group.count)
    return Gallery(len(table), len(wrong), tuple(by_outcome), tuple(by_position))


def gallery_as_data(gallery: Gallery, *, subwords: bool = False) -> dict[str, Any]:
    """Return a gallery as JSON-compatible data; for subwords with the joined sentences."""
    return {
        "inputs": gallery.inputs,
        "wrong": gallery.wrong,
        "groupings": {
            "kind": _groups(gallery.by_outcome, subwords),
            "first wrong token": _groups(gallery.by_position, subwords),
        },
    }


def _inputs(loaded: Trained, source: FailureSource, sequences: int) -> list[Batch]:
    task, model = loaded.task, loaded.model
    if task.open_ended:
        raise InputError("this task has no single reference answer, so no output is a failure")
    if source not in get_args(FailureSource):
        raise InputError(f"source={source!r} must be one of {', '.join(get_args(FailureSource))}")
    if source == "held out":
        return [fixed_pairs(task, sequences, split="test")]
    longer = {length: pairs for length, pairs in held_out_by_length(task).items() if length > task.trained_lengths[-1]}
    if not within_max_seq_len(model, longer):
        raise InputError(
            f"the model cannot read inputs longer than those it was trained on ({task.trained_lengths[-1]})"
        )
    return list(within_max_seq_len(model, longer).values())


def _first_wrong_index(row: Any) -> int:
    """Return the index of the first token that is wrong, missing or superfluous; EOS counts as a token."""
    index = first_difference(row.output, row.reference)
    return len(row.reference) if index is None else index


def _first_wrong_position(row: Any) -> int:
    """Return the position of the first wrong token, from 1, at most ``MAX_POSITION``."""
    return min(MAX_POSITION, _first_wrong_index(row) + 1)


def _position_name(position: Any) -> str:
    return f"token {position}" + (" or later" if position == MAX_POSITION else "")


def _groups(groups: tuple[FailureGroup, ...], subwords: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": group.name,
            "meaning": group.meaning,
            "count": group.count,
            "examples": [_example(row, subwords) for row in group.examples.itertuples()],
        }
        for group in groups
    ]


def _example(row: Any, subwords: bool) -> dict[str, Any]:
    sides = {"source": row.input, "output": row.output, "expected": row.reference}
    return {
        "texts": {name: sentence_of(tokens) for name, tokens in sides.items()} if subwords else None,
        "input": row.input,
        "typed": row.input_text,
        "output": row.output,
        "expected": row.reference,
        "stopped": row.stopped,
        "place": _first_wrong_index(row),
    }
