"""Loss, token accuracy and exact match of a model on held-out pairs; of translations BLEU and chrF too."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F

from core.evaluation.metrics import METRICS, measure_metrics
from core.evaluation.stepwise import free_running_logits
from core.evaluation.translation_quality import output_text, reference_texts, score_translations
from core.generation import GREEDY, Strategy, generate
from core.models import Seq2Seq
from core.tasks import Batch, Task, unpadded_batches
from core.text.vocab import EOS_ID, PAD_ID

CHUNK = 1_000  # sequences per forward pass at most: enough to use all cores
DECODED = 250  # sequences that are decoded together at most: each keeps its keys and values; 500 take no less time
MAX_FLOATS = 25_000_000  # of the widest tensor of a forward pass, logits included: 100 MB
MAX_SCORED_FLOATS = 5_000_000  # of that of a pass whose logits are all scored, which takes two more of that size


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracies over a set of pairs.

    Attributes:
        sequences: number of pairs.
        loss: cross-entropy in nats per token, mean over non-PAD tokens, teacher-forced.
        token_accuracy: share of tokens predicted correctly, teacher-forced, 0-1: of those that the task scores
            (``Batch.is_scored``), by default all but PAD.
        exact_match: share of sequences that free-running decoding reproduces exactly, EOS included, 0-1.
        free_running_loss: as ``loss``, but the decoder reads its own most likely tokens instead of the reference, for
            as many steps as the reference has; None if it was not measured.
        bleu, chrf: of the same outputs as ``exact_match``, 0-100, see ``TranslationQuality``; None if the task is not
            a translation, or they were not measured.
        metrics: metrics of plugins by name, of the same outputs; without those that were not measured.
    """

    sequences: int
    loss: float
    token_accuracy: float
    exact_match: float
    free_running_loss: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def perplexity(self) -> float:
        """exp(loss), or infinity if that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def sequence_loss(logits: torch.Tensor, tgt_out: torch.Tensor, *, reduction: str = "mean") -> torch.Tensor:
    """Cross-entropy in nats over the non-PAD tokens of ``tgt_out`` (B, T) int64; logits are (B, T, V)."""
    return F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID, reduction=reduction)


def sequences_per_pass(model: Seq2Seq, length: int, *, most: int | None = None) -> int:
    """Return how many sequences to run through a model together, at least 1 and at most ``CHUNK``.

    As many as keep the widest tensor, the logits or the inside of a feed-forward network, within a number of floats.

    Args:
        length: tokens of the longest source or target.
        most: that number; None is ``MAX_FLOATS``.
    """
    layers = [module.out_features for module in model.modules() if isinstance(module, torch.nn.Linear)]
    widest = max(model.vocab_sizes[1], *layers, 1)
    return max(1, min(CHUNK, (MAX_FLOATS if most is None else most) // (length * widest)))


def is_exact(tokens: torch.Tensor, tgt_out: torch.Tensor) -> torch.Tensor:
    """Return which decoded sequences equal their references, EOS included.

    Args:
        tokens: (B, T1) int64 decoded, PAD after EOS.
        tgt_out: (B, T2) int64 reference, PAD after EOS.

    Returns:
        (B,) bool.
    """
    width = max(tokens.shape[1], tgt_out.shape[1])
    decoded, reference = (F.pad(rows, (0, width - rows.shape[1]), value=PAD_ID) for rows in (tokens, tgt_out))
    return (decoded == reference).all(dim=1)


def with_eos(rows: torch.Tensor) -> torch.Tensor:
    """Return references (B, T) int64 as (B, T + 1), with EOS appended to those that lack it.

    A task may train without EOS; an answer that does not end is wrong all the same.
    """
    lengths = (rows != PAD_ID).sum(dim=1, keepdim=True)
    has_eos = rows.gather(1, (lengths - 1).clamp(min=0)) == EOS_ID
    return F.pad(rows, (0, 1), value=PAD_ID).scatter(1, lengths - has_eos.long(), EOS_ID)


@torch.no_grad()
def evaluate(
    model: Seq2Seq,
    pairs: Batch,
    *,
    strategy: Strategy = GREEDY,
    free_running_loss: bool = False,
    task: Task | None = None,
) -> Evaluation:
    """Evaluate a model on pairs. Its training mode and weights are left unchanged.

    Args:
        model: evaluated in evaluation mode.
        pairs: in padded batches of as many sequences as ``sequences_per_pass`` says.
        strategy: decoding strategy of ``exact_match``.
        free_running_loss: whether to measure that loss too.
        task: the task of the pairs, to measure the metrics of plugins too, and BLEU and chrF if it is a translation.
            An output is cut after as many tokens as the longest reference has.

    Raises:
        LabError: the task is a translation, and sacrebleu is not installed; or a plugin's metric fails.
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to evaluate on")
    loss = free_running = 0.0
    correct = scored = tokens = exact = 0
    tokenizer = task.bleu_tokenizer if task else None
    outputs: list[str] = []
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
        # An output that has not ended after the reference's last step is wrong whatever follows.
        for batch, decoded in _decoded(model, pairs, strategy, max_steps=pairs.tgt_out.shape[1]):
            exact += int(is_exact(decoded, with_eos(batch.tgt_out)).sum())
            if task and (tokenizer or METRICS):
                outputs += [output_text(task, ids) for ids in decoded.tolist()]
    own_loss = free_running / tokens if free_running_loss else None
    evaluation = Evaluation(len(pairs), loss / tokens, correct / scored, exact / len(pairs), own_loss)
    if not (task and outputs):
        return evaluation
    references = reference_texts(task, pairs)
    evaluation = replace(evaluation, metrics=measure_metrics(outputs, references))
    if tokenizer is None:
        return evaluation
    quality = score_translations(outputs, references, tokenizer=tokenizer)
    return replace(evaluation, bleu=quality.bleu, chrf=quality.chrf)


@torch.no_grad()
def exact_match_unpadded(model: Seq2Seq, pairs: Batch, *, strategy: Strategy = GREEDY) -> float:
    """Return the exact match (0-1) when sources are decoded without padding, as a single typed input is.

    Equals ``Evaluation.exact_match`` unless the model attends to padding.
    """
    exact = 0
    with evaluation_mode(model):
        for _, batch in unpadded_batches(pairs):
            exact += count_exact(model, batch, strategy, max_steps=min(batch.tgt_out.shape[1], model.max_seq_len))
    return exact / len(pairs)


def count_exact(model: Seq2Seq, pairs: Batch, strategy: Strategy, *, max_steps: int) -> int:
    """Decode pairs and count the exact matches."""
    decoded = _decoded(model, pairs, strategy, max_steps=max_steps)
    return sum(int(is_exact(tokens, with_eos(batch.tgt_out)).sum()) for batch, tokens in decoded)


def _decoded(
    model: Seq2Seq, pairs: Batch, strategy: Strategy, *, max_steps: int
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Yield pairs with their outputs (B, T) int64; with several hypotheses per source, in smaller batches."""
    fitting = sequences_per_pass(model, max(pairs.src.shape[1], max_steps))
    batch_size = max(1, min(DECODED, fitting) // strategy.sequences_per_source)
    for start in range(0, len(pairs), batch_size):
        batch = pairs[start : start + batch_size]
        yield batch, generate(model, batch.src, max_steps=max_steps, strategy=strategy).tokens


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside the block, and back into its previous mode after it."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
