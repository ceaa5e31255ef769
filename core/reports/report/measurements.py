"""Measurements for a run's report: every held-out input decoded by itself, with its cross-attention per step."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from core.evaluation.accuracy import Evaluation, evaluate, evaluation_mode, with_eos
from core.evaluation.answers import answer_table
from core.evaluation.translation_quality import (
    TranslationQuality,
    answer_text,
    copying_quality,
    reference_texts,
    score_translations,
)
from core.generation import GenerationResult, generate
from core.interpret.head_scores import HeadScore
from core.interpret.map_rows import recordable_chunks
from core.interpret.step_table import step_table
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import EOS_ID, PAD_ID

MAX_SEQUENCES_RECORDED = 1_000  # sequences whose attention is recorded: enough for a mean
MAX_STEPS_RECORDED = 4_000_000  # rows of the step table, over all heads


@dataclass(frozen=True)
class TrainingTargets:
    """Properties of a sample of the training data.

    Attributes:
        sampled: number of sequences sampled.
        with_eos: fraction of them whose target ends with EOS, 0-1.
        lengths: the different numbers of source symbols among them, sorted.
    """

    sampled: int
    with_eos: float
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class ReportMeasurements:
    """Measurements of a model on held-out pairs.

    Attributes:
        evaluation: metrics in padded batches, as in training.
        sequences: ``answer_table`` of the pairs, each decoded without padding.
        steps: ``step_table`` of the first pairs; empty if the model has no cross-attention.
        targets: properties of the training data.
        open_ended: see ``Task.open_ended``.
        quality, copying: BLEU and chrF of the outputs in ``sequences``, and of copying the sources; None if the task is
            not a translation.
        has_subwords: whether the tokens are subwords; the gold alignment is then of the words that both sides share.
    """

    evaluation: Evaluation
    sequences: pd.DataFrame
    steps: pd.DataFrame
    targets: TrainingTargets
    open_ended: bool = False
    quality: TranslationQuality | None = None
    copying: TranslationQuality | None = None
    has_subwords: bool = False

    @property
    def exact_match_unpadded(self) -> float:
        """Exact match when each input is decoded by itself, without padding, 0-1."""
        return float(self.sequences.is_exact.mean())

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
        if self.steps.empty:
            return []
        aligned = self.steps[self.steps.gold_column >= 0]
        weights = aligned.aer_weight
        errors = {
            "aer": (1 - aligned.argmax_accuracy) * weights,
            "uniform_aer": (1 - aligned.uniform_accuracy) * weights,
        }
        by_head = aligned.assign(**errors).groupby(["layer", "head"])
        means = by_head[["attention_mass", "argmax_accuracy", "uniform_mass"]].mean()
        rates = by_head[[*errors]].sum().div(by_head.aer_weight.sum(), axis=0)
        return [
            HeadScore(layer, head, *map(float, (*mean, *rate)))
            for (layer, head), mean, rate in zip(means.index, means.to_numpy(), rates.to_numpy(), strict=True)
        ]


@torch.no_grad()
def measure(model: Seq2Seq, task: Task, pairs: Batch, *, free_running_loss: bool = False) -> ReportMeasurements:
    """Measure a model on held-out pairs; its mode and weights are unchanged afterwards.

    Args:
        free_running_loss: whether to measure that loss too; see ``Evaluation``.

    Raises:
        ValueError: there are no pairs.
    """
    evaluation = evaluate(model, pairs, free_running_loss=free_running_loss, task=task)
    sequences = answer_table(model, task, pairs)
    quality = None
    if task.bleu_tokenizer is not None:
        # The table's references may be others: where an output equals another reference, the table has that one.
        outputs = [answer_text(task, tokens) for tokens in sequences.output]
        quality = score_translations(outputs, reference_texts(task, pairs), tokenizer=task.bleu_tokenizer)
    copying = copying_quality(task, pairs)
    pairs = Batch(pairs.src, with_eos(pairs.tgt))
    steps = []
    with evaluation_mode(model):
        for indices, chunk in _recorded_chunks(model, pairs):
            result = generate(model, chunk.src, max_steps=model.max_seq_len, need_weights=True)
            steps.append(_step_rows(task, indices, chunk, result))
    table = pd.concat(steps, ignore_index=True) if steps else pd.DataFrame()
    return ReportMeasurements(
        evaluation,
        sequences,
        table,
        sample_targets(task),
        task.open_ended,
        quality,
        copying,
        has_subwords=task.subwords is not None,
    )


def sample_targets(task: Task, *, count: int = 1_000) -> TrainingTargets:
    """Return properties of a sample of a task's training data."""
    batch = task.sample(count, split="train", generator=torch.Generator().manual_seed(0))
    lengths = (batch.src != PAD_ID).sum(dim=1) - 2
    last = (batch.tgt != PAD_ID).sum(dim=1, keepdim=True) - 1
    return TrainingTargets(
        sampled=count,
        with_eos=(batch.tgt.gather(1, last) == EOS_ID).float().mean().item(),
        lengths=tuple(lengths.unique().tolist()),
    )


def _recorded_chunks(model: Seq2Seq, pairs: Batch) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Yield (indices, pairs) in chunks without padding, as many as ``MAX_STEPS_RECORDED`` allows."""
    source = pairs.src[:1]
    maps = generate(model, source, max_steps=1, need_weights=True).maps
    weights = None if maps is None else maps.over_source(source.shape[1])  # (L, 1, H, 1, S)
    if weights is not None:
        rows_per_sequence = weights.shape[0] * weights.shape[2] * model.max_seq_len
        count = min(MAX_SEQUENCES_RECORDED, MAX_STEPS_RECORDED // rows_per_sequence + 1)
        yield from recordable_chunks(model, pairs[:count])


def _step_rows(task: Task, indices: torch.Tensor, pairs: Batch, result: GenerationResult) -> pd.DataFrame:
    table = step_table(task, pairs, result)
    return table.assign(sequence=indices.cpu().numpy()[table.sequence])
