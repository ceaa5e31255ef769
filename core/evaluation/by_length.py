"""How good a model is at inputs of every length, also of those that it was not trained on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from core.config.tasks import span
from core.evaluation.answers import answer_table
from core.models import Seq2Seq
from core.storage.errors import InputError
from core.tasks import Batch, Task
from core.text.vocab import PAD_ID

PER_LENGTH = 100
MOST_CHARTED = 40
_SEED = 42  # one set of inputs for all runs of a task, so that runs can be compared


@dataclass(frozen=True)
class LengthPoint:
    """What a model does with inputs of one length.

    Attributes:
        inputs: how many there were: all there are, where those are few.
        exact_match: share written exactly, free-running, each by itself, 0-1.
        token_accuracy: free-running too: share of the tokens of the references, each one's EOS included, that the
            model wrote at their very places, 0-1. One token left out makes all behind it wrong.
    """

    length: int
    inputs: int
    exact_match: float
    token_accuracy: float


@dataclass(frozen=True)
class LengthCurve:
    """What a model does with inputs of every length.

    Attributes:
        unit: what the lengths count.
        trained: the shortest and the longest length that it was trained on.
        points: in order; a length of which no input is held out has none.
        limit: why they end before the last length asked for, or "".
    """

    unit: str
    trained: tuple[int, int]
    points: tuple[LengthPoint, ...]
    limit: str = ""


def length_curve(
    model: Seq2Seq, task: Task, *, per_length: int = PER_LENGTH, lengths: range | None = None
) -> LengthCurve | None:
    """Measure a model at every length; None where length says nothing of the task. Arguments as of ``length_sets``."""
    sets = length_sets(task, per_length=per_length, lengths=lengths)
    return curve_through(model, task, sets, length_points(model, task, sets))


def length_sets(task: Task, *, per_length: int = PER_LENGTH, lengths: range | None = None) -> dict[int, Batch]:
    """Return pairs by length that no training sees, up to ``per_length`` of each, the same for every run of a task.

    Lengths of which there are none are left out.

    Args:
        lengths: those of ``task.lengths`` unless given; of very many, every second or third.

    Raises:
        InputError: the task has no inputs of such lengths.
    """
    lengths = _charted(task.lengths) if lengths is None else lengths
    if not (task.any_length or set(lengths) <= set(task.lengths)):
        known = span(task.lengths[0], task.lengths[-1]) if task.lengths else "none at all"
        raise InputError(f"lengths={span(lengths[0], lengths[-1])}: this task has inputs of {known} {task.length_unit}")
    drawn = {
        length: task.of_length(length, per_length, generator=torch.Generator().manual_seed(_SEED + length))
        for length in lengths
    }
    return {length: pairs for length, pairs in drawn.items() if len(pairs)}


def readable(model: Seq2Seq, sets: dict[int, Batch]) -> dict[int, Batch]:
    """Return the sets whose inputs a model can read and whose answers it can write."""
    return {
        length: pairs
        for length, pairs in sets.items()
        if max(_widest(pairs.src), _widest(pairs.tgt)) <= model.max_seq_len
    }


def length_points(model: Seq2Seq, task: Task, sets: dict[int, Batch]) -> Iterator[LengthPoint]:
    """Measure a model length by length, as far as it goes."""
    for length, pairs in readable(model, sets).items():
        table = answer_table(model, task, pairs.to(model.device))
        yield LengthPoint(
            length, len(table), float(table.is_exact.mean()), float(table.right.sum() / table.tokens.sum())
        )


def curve_through(
    model: Seq2Seq, task: Task, sets: dict[int, Batch], points: Iterable[LengthPoint]
) -> LengthCurve | None:
    """Put a model's points on ``sets`` together; None where there were none to be measured on."""
    if not sets:
        return None
    points, trained = tuple(points), task.trained_lengths
    cut_off = not points or points[-1].length < max(sets)
    limit = f"the model has max_seq_len={model.max_seq_len} places, BOS and EOS in" if cut_off else ""
    return LengthCurve(task.length_unit, (trained[0], trained[-1]), points, limit)


def _charted(lengths: range) -> range:
    """Return the lengths, or so many of them, evenly and with the last, as one sees in a chart."""
    return lengths[::-1][:: -(-len(lengths) // MOST_CHARTED) or 1][::-1]


def _widest(rows: torch.Tensor) -> int:
    """Return the tokens in the longest of some rows (B, T) int64, PAD left out."""
    return int((rows != PAD_ID).sum(dim=1).max())
