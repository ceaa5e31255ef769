"""Measurements for a run's report: every held-out input decoded separately, with its cross-attention per step."""

from dataclasses import dataclass

import pandas as pd
import torch

from core.evaluation.accuracy import Evaluation, evaluate
from core.evaluation.answers import answer_table
from core.evaluation.error_rates import measure_error_rates
from core.evaluation.headline import EXACT_MATCH, Headline, HeadlineFigure, headline_of
from core.evaluation.padding_effect import PaddingEffect, measure_padding_effect
from core.evaluation.translation_quality import TranslationQuality, copying_quality
from core.interpret.head_scores import HeadScore
from core.interpret.recorded_outputs import decode_recorded, score_recorded_heads
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import EOS_ID, PAD_ID


@dataclass(frozen=True)
class TrainingTargets:
    """Properties of a sample of the training data.

    Attributes:
        sampled: number of sequences sampled.
        with_eos: fraction of targets that end with EOS, 0-1.
        lengths: the distinct numbers of source symbols, sorted.
    """

    sampled: int
    with_eos: float
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class ReportMeasurements:
    """Measurements of a model on held-out pairs.

    Attributes:
        evaluation: metrics, of outputs that were decoded without padding.
        sequences: ``answer_table`` of the pairs, with the same outputs.
        padding: whether padding changes the outputs.
        steps: ``step_table`` of the first pairs; empty if the model has no cross-attention.
        targets: properties of the training data.
        headline: which figures decide.
        quality, copying: BLEU and chrF of the outputs in ``sequences``, and of copying the sources; None if the task's
            answers have no BLEU.
        token_error_rate: edits to the nearest references per token of them; None unless it is one of those figures.
        reads_output: whether the model also attends to its own output in the steps, as a decoder-only model does.
        has_subwords: whether the tokens are subwords; the gold alignment then consists of the words on both sides.
    """

    evaluation: Evaluation
    sequences: pd.DataFrame
    padding: PaddingEffect
    steps: pd.DataFrame
    targets: TrainingTargets
    headline: Headline = EXACT_MATCH
    quality: TranslationQuality | None = None
    copying: TranslationQuality | None = None
    token_error_rate: float | None = None
    reads_output: bool = False
    has_subwords: bool = False

    @property
    def exact_match(self) -> float:
        """Share of the inputs that are answered with one of their references, 0-1."""
        return float(self.sequences.is_exact.mean())

    @property
    def figures(self) -> tuple[HeadlineFigure, ...]:
        """The figures that decide."""
        return self.headline.figures(
            {
                "exact_match": self.exact_match,
                "error_rate": 1 - self.exact_match,
                "token_error_rate": self.token_error_rate,
                "bleu": self.quality.bleu if self.quality else None,
                "perplexity": self.evaluation.perplexity,
            }
        )

    @property
    def stopped(self) -> float:
        """Fraction of outputs that end with EOS, 0-1."""
        return float(self.sequences.stopped.mean())

    def exact_by_length(self, *, min_count: int = 1) -> dict[int, float]:
        """Return exact match (0-1) by number of source symbols, for lengths with at least ``min_count`` inputs."""
        groups = self.sequences.groupby("length").is_exact
        means = groups.mean()[groups.size() >= min_count]
        return dict(zip(means.index.tolist(), means.tolist(), strict=True))

    def head_scores(self) -> list[HeadScore]:
        """Return the alignment scores of every cross-attention head; [] without cross-attention."""
        return score_recorded_heads(self.steps)


def measure(model: Seq2Seq, task: Task, pairs: Batch, *, free_running_loss: bool = False) -> ReportMeasurements:
    """Measure a model on held-out pairs; its mode and weights are unchanged afterwards.

    Args:
        free_running_loss: whether to measure that loss too; see ``Evaluation``.

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to evaluate on")
    recorded = decode_recorded(model, task, pairs)
    headline = headline_of(task)
    rates = measure_error_rates(task, recorded.outputs) if headline.has_error_rates else None
    return ReportMeasurements(
        evaluate(model, pairs, free_running_loss=free_running_loss, task=task, outputs=recorded.outputs),
        answer_table(model, task, pairs, outputs=recorded.outputs),
        measure_padding_effect(model, task, recorded.outputs),
        recorded.steps,
        sample_targets(task),
        headline,
        recorded.outputs.quality(task),
        copying_quality(task, pairs),
        rates.token_rate if rates else None,
        reads_output={head.block for head in model.heads} == {"decoder"},
        has_subwords=task.subwords is not None,
    )


def sample_targets(task: Task) -> TrainingTargets:
    """Return properties of a sample of a task's training data."""
    batch = task.sample(1_000, split="train", generator=torch.Generator().manual_seed(0))
    lengths = (batch.src != PAD_ID).sum(dim=1) - 2
    last = (batch.tgt != PAD_ID).sum(dim=1, keepdim=True) - 1
    return TrainingTargets(
        sampled=len(batch),
        with_eos=(batch.tgt.gather(1, last) == EOS_ID).float().mean().item(),
        lengths=tuple(lengths.unique().tolist()),
    )
