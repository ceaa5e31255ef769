"""A run's failures, one by one: grouped by kind and by the first wrong token, with some of each to look into."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd

from core.evaluation.answers import answer_parts, join_parts
from core.evaluation.by_length import held_out_by_length, within_max_seq_len
from core.evaluation.failures import OUTCOMES, first_difference
from core.runs.load import LoadedRun
from core.storage.errors import InputError
from core.tasks import Batch, fixed_pairs

FailureSource = Literal["held out", "longer"]
PER_GROUP = 20  # examples: enough to see what they have in common
MOST_PLACES = 12  # groups by the first wrong token; what goes wrong later is one group


@dataclass(frozen=True)
class FailureGroup:
    """Failures that have something in common.

    Attributes:
        name: what that is.
        meaning: what the name means, or "".
        count: how many there are.
        examples: the first of them, rows of ``answers.answer_table``.
    """

    name: str
    meaning: str
    count: int
    examples: pd.DataFrame


@dataclass(frozen=True)
class Gallery:
    """What a run got wrong.

    Attributes:
        inputs: how many it answered.
        wrong: how many of them wrongly.
        by_kind: the largest group first; see ``failures.OUTCOMES``.
        by_position: by the first token that is wrong, missing or too many, in order.
    """

    inputs: int
    wrong: int
    by_kind: tuple[FailureGroup, ...]
    by_position: tuple[FailureGroup, ...]


def find_failures(loaded: LoadedRun, *, source: FailureSource, sequences: int) -> Iterator[float | Gallery]:
    """Let a run answer inputs greedily, each by itself, and collect what it gets wrong.

    Args:
        source: the test set, or inputs longer than those trained on, up to twice as long.
        sequences: of the test set; 100 of every longer length.

    Yields:
        The share of the work that is done, 0-1, and at last the gallery.

    Raises:
        InputError: no answer of the task is wrong, or there are no longer inputs that it can read.
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
    """FailureGroup the wrong rows of an ``answers.answer_table``."""
    wrong = table[~table.is_exact]
    kinds = [
        FailureGroup(kind, OUTCOMES[kind], len(rows), rows.head(PER_GROUP)) for kind, rows in wrong.groupby("outcome")
    ]
    places = wrong.assign(place=[_place(row) for row in wrong.itertuples()]).groupby("place")
    by_position = [FailureGroup(_place_name(place), "", len(rows), rows.head(PER_GROUP)) for place, rows in places]
    return Gallery(len(table), len(wrong), tuple(sorted(kinds, key=lambda group: -group.count)), tuple(by_position))


def gallery_as_data(gallery: Gallery) -> dict[str, Any]:
    """Return a gallery as plain data."""
    return {
        "inputs": gallery.inputs,
        "wrong": gallery.wrong,
        "groupings": {"kind": _groups(gallery.by_kind), "first wrong token": _groups(gallery.by_position)},
    }


def _inputs(loaded: LoadedRun, source: FailureSource, sequences: int) -> list[Batch]:
    task, model = loaded.task, loaded.model
    if task.open_ended:
        raise InputError("many answers are as good to an input of this task, so none of them is a failure")
    if source not in get_args(FailureSource):
        raise InputError(f"source={source!r} must be one of {', '.join(get_args(FailureSource))}")
    if source == "held out":
        return [fixed_pairs(task, sequences, split="test")]
    longer = {length: pairs for length, pairs in held_out_by_length(task).items() if length > task.trained_lengths[-1]}
    if not within_max_seq_len(model, longer):
        raise InputError(
            f"there are no inputs longer than those trained on, {task.trained_lengths[-1]}, that it can read"
        )
    return list(within_max_seq_len(model, longer).values())


def _place(row: Any) -> int:
    """Return which token of an answer is the first one that is wrong, missing or too many, from 1; at most the last."""
    place = first_difference(row.output, row.reference)
    return min(MOST_PLACES, (len(row.reference) if place is None else place) + 1)


def _place_name(place: int) -> str:
    return f"token {place}" + (" or later" if place == MOST_PLACES else "")


def _groups(groups: tuple[FailureGroup, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": group.name,
            "meaning": group.meaning,
            "count": group.count,
            "examples": [_example(row) for row in group.examples.itertuples()],
        }
        for group in groups
    ]


def _example(row: Any) -> dict[str, Any]:
    place = first_difference(row.output, row.reference)
    return {
        "input": row.input,
        "typed": row.input_text,
        "output": row.output,
        "expected": row.reference,
        "stopped": row.stopped,
        "place": len(row.reference) if place is None else place,
    }
