"""Loss, token accuracy and exact match of a model on held-out pairs; BLEU, chrF and error rates where they decide."""

import math
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F

from core.evaluation.confidence import confidence_threshold
from core.evaluation.error_rates import measure_error_rates
from core.evaluation.headline import MEASURES, HeadlineFigure, headline_of
from core.evaluation.metrics import METRICS, measure_metrics
from core.evaluation.outputs import Outputs, decode_padded
from core.evaluation.passes import MAX_SCORED_FLOATS, evaluation_mode, sequences_per_pass
from core.evaluation.stepwise import free_running_logits
from core.evaluation.translation_quality import reference_texts, score_translations
from core.generation import GREEDY, Strategy
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import PAD_ID


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracies over a set of pairs.

    Attributes:
        sequences: number of pairs.
        loss: cross-entropy in nats per token, mean over non-PAD tokens, teacher-forced.
        token_accuracy: share of tokens predicted correctly, teacher-forced, 0-1: of those that the task scores
            (``Batch.is_scored``), by default all but PAD.
        exact_match: share of sources that free-running decoding answers with one of their references, EOS included,
            0-1.
        free_running_loss: as ``loss``, but the decoder reads its own most likely tokens instead of the reference, for
            as many steps as the reference has; None if it was not measured.
        bleu, chrf: of the same outputs as ``exact_match``, 0-100, see ``TranslationQuality``; None if the answers of
            the task have no BLEU (``core.evaluation.headline``), or they were not measured.
        error_rate: share of the same outputs that equal none of the references of their source, 0-1; None unless an
            error rate is one of the figures that decide.
        token_error_rate: edits to the nearest references per token of them, see ``ErrorRates``; None as ``error_rate``.
        train_token_accuracy, train_exact_match: the same two on a fixed sample of training pairs; None unless measured
            by ``core.training.loop``.
        confidence_threshold: see ``core.evaluation.confidence``; None if few outputs are correct, or if it was not
            measured.
        metrics: metrics of plugins by name, of the same outputs; without those that were not measured.
    """

    sequences: int
    loss: float
    token_accuracy: float
    exact_match: float
    free_running_loss: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    error_rate: float | None = None
    token_error_rate: float | None = None
    train_token_accuracy: float | None = None
    train_exact_match: float | None = None
    confidence_threshold: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def perplexity(self) -> float:
        """exp(loss), or infinity if that overflows."""
        return perplexity(self.loss)

    def figures(self, task: Task) -> tuple[HeadlineFigure, ...]:
        """Return the figures that decide how good the model is at a task; see ``core.evaluation.headline``."""
        return headline_of(task).figures({measure: getattr(self, measure) for measure in MEASURES})


@dataclass(frozen=True)
class ReferenceScores:
    """How well a model predicts the tokens of references; the attributes are those of ``Evaluation``."""

    loss: float
    token_accuracy: float
    free_running_loss: float | None = None


def perplexity(loss: float) -> float:
    """Return exp(loss), or infinity if that overflows."""
    return math.exp(loss) if loss < 700 else math.inf


def sequence_loss(logits: torch.Tensor, tgt_out: torch.Tensor, *, reduction: str = "mean") -> torch.Tensor:
    """Cross-entropy in nats over the non-PAD tokens of ``tgt_out`` (B, T) int64; logits are (B, T, V)."""
    return F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID, reduction=reduction)


@torch.no_grad()
def score_references(model: Seq2Seq, pairs: Batch, *, free_running_loss: bool = False) -> ReferenceScores:
    """Score the references of pairs, without decoding. The model's training mode and weights are left unchanged.

    Args:
        model: scores in evaluation mode.
        pairs: in padded batches of as many sequences as ``sequences_per_pass`` says.
        free_running_loss: whether to measure that loss too.

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to evaluate on")
    loss = free_running = 0.0
    correct = scored = tokens = 0
    with evaluation_mode(model):
        length = max(pairs.src.shape[1], pairs.tgt_in.shape[1])
        chunk_size = sequences_per_pass(model, length, most=MAX_SCORED_FLOATS)
        for start in range(0, len(pairs), chunk_size):
            chunk = pairs[start : start + chunk_size]
            logits = model(chunk.src, chunk.tgt_in)
            loss += sequence_loss(logits, chunk.tgt_out, reduction="sum").item()
            if free_running_loss:
                own = free_running_logits(model, chunk)
                free_running += sequence_loss(own, chunk.tgt_out, reduction="sum").item()
            is_scored = chunk.is_scored
            correct += int(((logits.argmax(dim=-1) == chunk.tgt_out) & is_scored).sum())
            scored += int(is_scored.sum())
            tokens += int((chunk.tgt_out != PAD_ID).sum())
            del logits  # before the next ones need memory
    return ReferenceScores(loss / tokens, correct / scored, free_running / tokens if free_running_loss else None)


def evaluate(
    model: Seq2Seq,
    pairs: Batch,
    *,
    strategy: Strategy = GREEDY,
    free_running_loss: bool = False,
    task: Task | None = None,
    outputs: Outputs | None = None,
) -> Evaluation:
    """Evaluate a model on pairs. Its training mode and weights are left unchanged.

    Args:
        model: evaluated in evaluation mode.
        pairs: in padded batches of as many sequences as ``sequences_per_pass`` says.
        strategy: decoding strategy of ``exact_match``.
        free_running_loss: whether to measure that loss too.
        task: the task of the pairs, to compare outputs with all references of their source, and to measure too the
            metrics of plugins, BLEU and chrF of texts, and error rates. An output is cut at the width of the pairs.
            None compares outputs with the references of the pairs alone.
        outputs: what was decoded from the pairs by this strategy; None decodes them.

    Raises:
        LabError: BLEU is measured, and sacrebleu is not installed; or a plugin's metric fails.
        ValueError: there are no pairs.
    """
    scores = score_references(model, pairs, free_running_loss=free_running_loss)
    # An output that has not ended after the longest reference's last step is wrong whatever follows.
    if outputs is None:
        outputs = decode_padded(model, pairs, strategy=strategy, max_steps=pairs.tgt_out.shape[1])
    is_exact = outputs.is_exact(task)
    evaluation = Evaluation(
        len(pairs),
        scores.loss,
        scores.token_accuracy,
        int(is_exact.sum()) / len(pairs),
        scores.free_running_loss,
        confidence_threshold=confidence_threshold(outputs, is_exact) if strategy == GREEDY else None,
    )
    if task is None:
        return evaluation
    headline = headline_of(task)
    if headline.has_error_rates and (rates := measure_error_rates(task, outputs)):
        evaluation = replace(evaluation, error_rate=rates.sequence_rate, token_error_rate=rates.token_rate)
    if not (headline.bleu_tokenizer or METRICS):
        return evaluation
    texts, references = outputs.texts(task), reference_texts(task, pairs)
    evaluation = replace(evaluation, metrics=measure_metrics(texts, references))
    if headline.bleu_tokenizer is None:
        return evaluation
    quality = score_translations(texts, references, tokenizer=headline.bleu_tokenizer)
    return replace(evaluation, bleu=quality.bleu, chrf=quality.chrf)
