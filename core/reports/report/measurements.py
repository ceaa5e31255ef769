"""Measure a model for its report: every sequence decoded by itself, and every step looked into."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from core.evaluation.accuracy import Evaluation, evaluate, evaluation_mode, with_eos
from core.evaluation.answers import answer_table
from core.generation import GenerationResult, generate
from core.interpret.head_scores import HeadScore
from core.interpret.map_rows import recordable_chunks
from core.interpret.step_table import step_table
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import EOS_ID, PAD_ID

LOOKED_INTO = 1_000  # sequences whose attention is recorded: plenty for a mean
MAX_STEPS_RECORDED = 4_000_000  # over all heads: what the table of steps may hold


@dataclass(frozen=True)
class TrainingTargets:
    """What training shows a model, from a sample of it.

    Attributes:
        sampled: sequences looked at.
        with_eos: share of them whose target ends with EOS.
        lengths: the different numbers of symbols in them, in order.
    """

    sampled: int
    with_eos: float
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class ReportMeasurements:
    """What was found out about a model on held-out pairs.

    Attributes:
        evaluation: in one padded batch, as in training.
        sequences: ``answers.answer_table`` of the pairs.
        steps: ``step_table`` of the first of them; empty where the model has no cross-attention.
        targets: what the training data holds.
        open_ended: see ``Task.open_ended``.
    """

    evaluation: Evaluation
    sequences: pd.DataFrame
    steps: pd.DataFrame
    targets: TrainingTargets
    open_ended: bool = False

    @property
    def exact_alone(self) -> float:
        """Share of sequences written exactly when each is decoded by itself, 0-1."""
        return float(self.sequences.is_exact.mean())

    @property
    def stopped(self) -> float:
        """Share of sequences that ended by EOS, 0-1."""
        return float(self.sequences.stopped.mean())

    def exact_by_length(self, *, least: int = 1) -> pd.Series:
        """Return the share of exact answers (0-1) by the number of symbols, where there are at least that many."""
        groups = self.sequences.groupby("length").is_exact
        return groups.mean()[groups.size() >= least]

    def head_scores(self) -> list[HeadScore]:
        """Score every cross-attention head on the steps that have a true source token."""
        if self.steps.empty:
            return []
        aligned = self.steps[self.steps.gold_column >= 0]
        means = aligned.groupby(["layer", "head"])[["attention_mass", "argmax_accuracy", "uniform_mass"]].mean()
        return [
            HeadScore(layer, head, row.attention_mass, row.argmax_accuracy, row.uniform_mass)
            for (layer, head), row in zip(means.index, means.itertuples(), strict=True)
        ]


@torch.no_grad()
def measure(model: Seq2Seq, task: Task, pairs: Batch) -> ReportMeasurements:
    """Measure a model on held-out pairs; its mode and its weights are left as they were.

    Raises:
        ValueError: there are no pairs.
    """
    evaluation, sequences = evaluate(model, pairs), answer_table(model, task, pairs)
    pairs = Batch(pairs.src, with_eos(pairs.tgt))
    steps = []
    with evaluation_mode(model):
        for places, chunk in _looked_into(model, pairs):
            decoded = generate(model, chunk.src, max_steps=model.max_seq_len, need_weights=True)
            steps.append(_steps(task, places, chunk, decoded))
    table = pd.concat(steps, ignore_index=True) if steps else pd.DataFrame()
    return ReportMeasurements(evaluation, sequences, table, targets_of(task), task.open_ended)


def targets_of(task: Task, *, count: int = 1_000) -> TrainingTargets:
    """Look at a sample of what a task trains on."""
    batch = task.sample(count, split="train", generator=torch.Generator().manual_seed(0))
    lengths = (batch.src != PAD_ID).sum(dim=1) - 2
    last = (batch.tgt != PAD_ID).sum(dim=1, keepdim=True) - 1
    return TrainingTargets(
        sampled=count,
        with_eos=(batch.tgt.gather(1, last) == EOS_ID).float().mean().item(),
        lengths=tuple(lengths.unique().tolist()),
    )


def _looked_into(model: Seq2Seq, pairs: Batch) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Yield the first pairs in chunks without padding, as many at once and in all as there is room to record."""
    source = pairs.src[:1]
    first = generate(model, source, max_steps=1, need_weights=True).maps.over_source(source.shape[1])
    if first is not None:
        count = min(LOOKED_INTO, MAX_STEPS_RECORDED // (first.shape[0] * first.shape[2] * model.max_seq_len) + 1)
        yield from recordable_chunks(model, pairs[:count])


def _steps(task: Task, places: torch.Tensor, pairs: Batch, decoded: GenerationResult) -> pd.DataFrame:
    table = step_table(task, pairs, decoded)
    return table.assign(sequence=places.cpu().numpy()[table.sequence])
