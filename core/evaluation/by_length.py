"""Accuracy as a function of input length, also at lengths beyond those trained on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

import torch

from core.config.counting import percent
from core.config.tasks import format_range
from core.evaluation.answers import answer_table
from core.models import Seq2Seq
from core.storage.errors import InputError
from core.tasks import Batch, Task
from core.text.vocab import PAD_ID

INPUTS_PER_LENGTH = 100
MAX_LENGTHS = 40  # as many as a chart can show
_SEED = 42  # the same inputs for all runs of a task, so that runs can be compared


@dataclass(frozen=True)
class LengthAccuracy:
    """Accuracy on inputs of one length.

    Attributes:
        length: of the input, in the task's unit.
        inputs: number of inputs: all that exist, if there are few.
        exact_match: share of outputs that equal their reference, free-running and without padding, 0-1.
        token_accuracy: share of the scored reference tokens (``Batch.is_scored``; by default all, EOS included) that
            the free-running output has at the same position, 0-1. After one omitted token all later ones are wrong.
    """

    length: int
    inputs: int
    exact_match: float
    token_accuracy: float


@dataclass(frozen=True)
class LengthRangeMean:
    """Means over a range of lengths, in which every length has the same weight.

    Published figures for long inputs depend on the range (41–100, 41–500 …), so the range is part of the result.

    Attributes:
        first, last: the shortest and the longest length measured in the range.
    """

    first: int
    last: int
    exact_match: float
    token_accuracy: float

    def __str__(self) -> str:
        return (
            f"lengths {format_range(self.first, self.last)}: token accuracy {percent(self.token_accuracy, 2)}, "
            f"exact match {percent(self.exact_match, 2)}"
        )


@dataclass(frozen=True)
class AccuracyByLength:
    """A model's accuracy at every length.

    Attributes:
        unit: what the lengths count.
        trained: the shortest and the longest length trained on.
        points: in order of length; a length without held-out inputs has none.
        limit: why the points end before the last length requested, or "".
    """

    unit: str
    trained: tuple[int, int]
    points: tuple[LengthAccuracy, ...]
    limit: str = ""

    def mean(self, lengths: range) -> LengthRangeMean:
        """Average over the measured lengths in a range, such as ``range(41, 101)``.

        Raises:
            ValueError: no length in the range was measured.
        """
        points = [point for point in self.points if point.length in lengths]
        if not points:
            raise ValueError(f"no inputs of length {format_range(lengths[0], lengths[-1])} were measured")
        return LengthRangeMean(
            points[0].length,
            points[-1].length,
            fmean(point.exact_match for point in points),
            fmean(point.token_accuracy for point in points),
        )


def accuracy_by_length(
    model: Seq2Seq, task: Task, *, per_length: int = INPUTS_PER_LENGTH, lengths: range | None = None
) -> AccuracyByLength | None:
    """Measure a model at every length; None if inputs have no length. Arguments of ``held_out_by_length``."""
    sets = held_out_by_length(task, per_length=per_length, lengths=lengths)
    return collect_lengths(model, task, sets, measure_lengths(model, task, sets))


def held_out_by_length(
    task: Task, *, per_length: int = INPUTS_PER_LENGTH, lengths: range | None = None
) -> dict[int, Batch]:
    """Return held-out pairs by input length, up to ``per_length`` each, the same for every run of a task.

    Lengths without held-out inputs are omitted.

    Args:
        task: draws the pairs.
        per_length: maximum number of pairs per length.
        lengths: default ``task.lengths``, evenly thinned to at most ``MAX_LENGTHS``.

    Raises:
        InputError: the task has no inputs of some of these lengths.
    """
    lengths = _thinned(task.lengths) if lengths is None else lengths
    if not (task.any_length or set(lengths) <= set(task.lengths)):
        known = format_range(task.lengths[0], task.lengths[-1]) if task.lengths else "none at all"
        raise InputError(
            f"lengths={format_range(lengths[0], lengths[-1])}: this task has inputs of {known} {task.length_unit}"
        )
    drawn = {
        length: task.sample_of_length(length, per_length, generator=torch.Generator().manual_seed(_SEED + length))
        for length in lengths
    }
    return {length: pairs for length, pairs in drawn.items() if len(pairs)}


def within_max_seq_len(model: Seq2Seq, sets: dict[int, Batch]) -> dict[int, Batch]:
    """Return the sets whose inputs and references fit into the model's maximum sequence length."""
    return {
        length: pairs
        for length, pairs in sets.items()
        if max(_longest(pairs.src), _longest(pairs.tgt)) <= model.max_seq_len
    }


def measure_lengths(model: Seq2Seq, task: Task, sets: dict[int, Batch]) -> Iterator[LengthAccuracy]:
    """Measure a model length by length, up to its maximum sequence length."""
    for length, pairs in within_max_seq_len(model, sets).items():
        table = answer_table(model, task, pairs.to(model.device))
        exact_match = float(table.is_exact.mean())
        token_accuracy = float(table.correct_tokens.sum() / table.scored_tokens.sum())
        yield LengthAccuracy(length, len(table), exact_match, token_accuracy)


def collect_lengths(
    model: Seq2Seq, task: Task, sets: dict[int, Batch], points: Iterable[LengthAccuracy]
) -> AccuracyByLength | None:
    """Collect the points measured on ``sets``; None if there are no sets."""
    if not sets:
        return None
    points, trained = tuple(points), task.trained_lengths
    is_cut_off = not points or points[-1].length < max(sets)
    limit = f"the model has max_seq_len={model.max_seq_len}, BOS and EOS included" if is_cut_off else ""
    return AccuracyByLength(task.length_unit, (trained[0], trained[-1]), points, limit)


def _thinned(lengths: range) -> range:
    """Return at most ``MAX_LENGTHS`` of the lengths, evenly spaced and including the last."""
    return lengths[::-1][:: -(-len(lengths) // MAX_LENGTHS) or 1][::-1]


def _longest(rows: torch.Tensor) -> int:
    """Return the largest number of non-PAD tokens in a row of (B, T) int64."""
    return int((rows != PAD_ID).sum(dim=1).max())
