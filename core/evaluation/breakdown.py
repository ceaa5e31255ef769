"""Exact match on test pairs that a task draws and groups in another way than its training pairs."""

from dataclasses import dataclass

import torch

from core.evaluation.outputs import count_exact
from core.evaluation.passes import evaluation_mode
from core.generation import GREEDY, Strategy
from core.models import Seq2Seq
from core.tasks import Task
from core.tasks.data import DATA_SEED


@dataclass(frozen=True)
class GroupAccuracy:
    """Exact match (0-1) of one group of pairs."""

    name: str
    sequences: int
    exact_match: float


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
    """Measure exact match on the task's breakdown, the same pairs for every run; None if the task has none.

    Args:
        sequences: number of pairs; fewer if the test split holds fewer.
        strategy: decoding strategy.
    """
    breakdown = task.breakdown(sequences, generator=torch.Generator().manual_seed(DATA_SEED))
    if breakdown is None:
        return None
    max_steps = breakdown.pairs.tgt_out.shape[1]
    with evaluation_mode(model):
        exact = {
            name: count_exact(model, breakdown.pairs[rows], strategy, max_steps=max_steps)
            for name, rows in breakdown.groups.items()
        }
    groups = [GroupAccuracy(name, len(rows), exact[name] / len(rows)) for name, rows in breakdown.groups.items()]
    total = len(breakdown.pairs)
    return BreakdownAccuracy(breakdown.name, breakdown.sampling, total, sum(exact.values()) / total, tuple(groups))
