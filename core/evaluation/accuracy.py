"""Loss, token accuracy and exact match of a model on held-out pairs."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.generation import GREEDY, Strategy, generate
from core.models import Seq2Seq
from core.tasks import Batch, unpadded_batches
from core.text.vocab import EOS_ID, PAD_ID

CHUNK = 1_000  # sequences per forward pass: enough to use all cores, little memory


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracies over a set of pairs.

    Attributes:
        sequences: number of pairs.
        loss: cross-entropy in nats per token, mean over non-PAD tokens, teacher-forced.
        token_accuracy: share of non-PAD tokens predicted correctly, teacher-forced, 0-1.
        exact_match: share of sequences that free-running decoding reproduces exactly, EOS included, 0-1.
    """

    sequences: int
    loss: float
    token_accuracy: float
    exact_match: float

    @property
    def perplexity(self) -> float:
        """exp(loss), or infinity if that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def sequence_loss(logits: torch.Tensor, tgt_out: torch.Tensor, *, reduction: str = "mean") -> torch.Tensor:
    """Cross-entropy in nats over the non-PAD tokens of ``tgt_out`` (B, T) int64; logits are (B, T, V)."""
    return F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID, reduction=reduction)


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
def evaluate(model: Seq2Seq, pairs: Batch, *, strategy: Strategy = GREEDY) -> Evaluation:
    """Evaluate a model on pairs. Its training mode and weights are left unchanged.

    Args:
        model: evaluated in evaluation mode.
        pairs: in padded batches of up to ``CHUNK`` sequences.
        strategy: decoding strategy of ``exact_match``.

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to evaluate on")
    loss = 0.0
    correct = tokens = exact = 0
    with evaluation_mode(model):
        for start in range(0, len(pairs), CHUNK):
            chunk = pairs[start : start + CHUNK]
            logits = model(chunk.src, chunk.tgt_in)
            is_token = chunk.tgt_out != PAD_ID
            loss += sequence_loss(logits, chunk.tgt_out, reduction="sum").item()
            correct += int(((logits.argmax(dim=-1) == chunk.tgt_out) & is_token).sum())
            tokens += int(is_token.sum())
            # An output that has not ended after the reference's last step is wrong whatever follows.
            exact += count_exact(model, chunk, strategy, max_steps=chunk.tgt_out.shape[1])
    return Evaluation(len(pairs), loss / tokens, correct / tokens, exact / len(pairs))


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
    """Decode pairs and count the exact matches; a strategy with several hypotheses per source gets smaller batches."""
    exact = 0
    batch_size = max(1, CHUNK // strategy.sequences_per_source)
    for start in range(0, len(pairs), batch_size):
        batch = pairs[start : start + batch_size]
        result = generate(model, batch.src, max_steps=max_steps, strategy=strategy)
        exact += int(is_exact(result.tokens, with_eos(batch.tgt_out)).sum())
    return exact


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside the block, and back into its previous mode after it."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
