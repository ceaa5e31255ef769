"""Exact match on test pairs that a task draws and groups in another way than its training pairs."""

from dataclasses import dataclass

import torch

from core.evaluation.headline import headline_of
from core.evaluation.outputs import decode_padded, decode_unpadded
from core.evaluation.passes import evaluation_mode
from core.generation import GREEDY, Strategy
from core.models import Seq2Seq
from core.tasks import Task
from core.tasks.data import DATA_SEED


@dataclass(frozen=True)
class GroupAccuracy:
    """Exact match (0-1) of one group of pairs, and BLEU if the task's answers have it."""

    name: str
    sequences: int
    exact_match: float
    bleu: float | None = None


@dataclass(frozen=True)
class BreakdownAccuracy:
    """Exact match of all pairs of a ``core.tasks.Breakdown``, and of each group."""

    name: str
    sampling: str
    sequences: int
    exact_match: float
    groups: tuple[GroupAccuracy, ...]


@torch.no_grad()
def measure_breakdown(
    model: Seq2Seq, task: Task, *, sequences: int, strategy: Strategy = GREEDY
) -> BreakdownAccuracy | None:
    """Measure exact match, and BLEU if the answers have it, on the task's breakdown; None if the task has none.

    The pairs are the same for every run.

    Args:
        sequences: number of pairs; fewer if the test split holds fewer.
        strategy: decoding strategy.
    """
    breakdown = task.breakdown(sequences, generator=torch.Generator().manual_seed(DATA_SEED))
    if breakdown is None:
        return None
    exact: dict[str, int] = {}
    bleu: dict[str, float] = {}
    with evaluation_mode(model):
        for name, rows in breakdown.groups.items():
            pairs = breakdown.pairs[rows].trimmed()  # groups may have answers of very different lengths
            if headline_of(task).bleu_tokenizer is None:
                outputs = decode_padded(model, pairs, strategy=strategy, max_steps=breakdown.pairs.tgt_out.shape[1])
            else:
                outputs = decode_unpadded(model, pairs, strategy=strategy)
            exact[name] = int(outputs.is_exact(task).sum())
            if quality := outputs.quality(task):
                bleu[name] = quality.bleu
    groups = [
        GroupAccuracy(name, len(rows), exact[name] / len(rows), bleu.get(name))
        for name, rows in breakdown.groups.items()
    ]
    total = len(breakdown.pairs)
    return BreakdownAccuracy(breakdown.name, breakdown.sampling, total, sum(exact.values()) / total, tuple(groups))
