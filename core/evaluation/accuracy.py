"""How good a model is on held-out pairs: teacher-forced and, above all, writing on its own."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.generation import GREEDY, Strategy, generate
from core.models import Seq2Seq
from core.models.heads import NO_INTERVENTIONS, Interventions
from core.tasks import Batch
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

CHUNK = 1_000  # sequences decoded at once: enough to keep the cores busy, little memory


@dataclass(frozen=True)
class Evaluation:
    """Figures over a set of pairs.

    Attributes:
        sequences: number of pairs.
        loss: nats per token, mean over non-PAD tokens, teacher-forced.
        token_accuracy: share of non-PAD tokens predicted right, teacher-forced, 0-1.
        exact_match: share of sequences that free-running decoding writes exactly, its own EOS included, 0-1.
    """

    sequences: int
    loss: float
    token_accuracy: float
    exact_match: float

    @property
    def perplexity(self) -> float:
        """exp(loss), or infinity where that overflows."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def sequence_loss(logits: torch.Tensor, tgt_out: torch.Tensor, *, reduction: str = "mean") -> torch.Tensor:
    """Cross-entropy in nats over the non-PAD tokens of ``tgt_out`` (B, T) int64; logits are (B, T, V)."""
    return F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID, reduction=reduction)


def is_exact(tokens: torch.Tensor, tgt_out: torch.Tensor) -> torch.Tensor:
    """Tell which decoded sequences equal their references, EOS included: neither shorter nor longer.

    Args:
        tokens: (B, T1) int64 decoded, PAD behind EOS.
        tgt_out: (B, T2) int64 reference, PAD behind EOS.

    Returns:
        (B,) bool.
    """
    width = max(tokens.shape[1], tgt_out.shape[1])
    padded = [F.pad(rows, (0, width - rows.shape[1]), value=PAD_ID) for rows in (tokens, tgt_out)]
    return (padded[0] == padded[1]).all(dim=1)


def with_eos(rows: torch.Tensor) -> torch.Tensor:
    """Return references (B, T) int64, one place wider, that end with EOS also where the task leaves it out.

    A task may train without EOS; an answer that does not end is wrong all the same.
    """
    lengths = (rows != PAD_ID).sum(dim=1, keepdim=True)
    has_eos = rows.gather(1, (lengths - 1).clamp(min=0)) == EOS_ID
    return F.pad(rows, (0, 1), value=PAD_ID).scatter(1, lengths - has_eos.long(), EOS_ID)


@torch.no_grad()
def evaluate(model: Seq2Seq, pairs: Batch, *, strategy: Strategy = GREEDY) -> Evaluation:
    """Measure a model on pairs; its mode and its weights are left as they were.

    Args:
        strategy: how tokens are chosen in free-running decoding.

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to evaluate on")
    loss = correct = tokens = exact = 0.0
    with evaluation_mode(model):
        for start in range(0, len(pairs), CHUNK):
            chunk = pairs[start : start + CHUNK]
            logits, _ = model(chunk.src, chunk.tgt_in)
            real = chunk.tgt_out != PAD_ID
            loss += sequence_loss(logits, chunk.tgt_out, reduction="sum").item()
            correct += ((logits.argmax(dim=-1) == chunk.tgt_out) & real).sum().item()
            tokens += real.sum().item()
            # A decode that is not finished after the reference's last step is wrong whatever follows.
            exact += count_exact(model, chunk, strategy, max_steps=chunk.tgt_out.shape[1])
    return Evaluation(len(pairs), loss / tokens, correct / tokens, exact / len(pairs))


@torch.no_grad()
def exact_match_alone(model: Seq2Seq, pairs: Batch, *, strategy: Strategy = GREEDY) -> float:
    """Return the share of sequences (0-1) written exactly when each is decoded by itself, as typed input is.

    It equals ``Evaluation.exact_match`` unless the model reads the padding behind a sequence.
    """
    exact = 0
    with evaluation_mode(model):
        for _, chunk in without_padding(pairs):
            exact += count_exact(model, chunk, strategy, max_steps=min(chunk.tgt_out.shape[1], model.max_seq_len))
    return exact / len(pairs)


def count_exact(
    model: Seq2Seq, pairs: Batch, strategy: Strategy, *, max_steps: int, interventions: Interventions = NO_INTERVENTIONS
) -> int:
    """Decode pairs, as many at once as memory allows for the strategy, and count those that are written exactly."""
    exact = 0
    at_once = max(1, CHUNK // strategy.rows_per_source)
    for start in range(0, len(pairs), at_once):
        part = pairs[start : start + at_once]
        decoded = generate(model, part.src, max_steps=max_steps, strategy=strategy, interventions=interventions)
        exact += is_exact(decoded.tokens, with_eos(part.tgt_out)).sum().item()
    return exact


def without_padding(pairs: Batch) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Split pairs into chunks of one source length, without PAD behind any source: each is decoded as if alone.

    Yields:
        The places (N,) int64 of a chunk's pairs among all, and the chunk.
    """
    lengths = (pairs.src != PAD_ID).sum(dim=1)
    for length in lengths.unique().tolist():
        for places in (lengths == length).nonzero().squeeze(1).split(CHUNK):
            yield places, Batch(pairs.src[places, :length], pairs.tgt[places])


@torch.no_grad()
def log_prob_of(
    model: Seq2Seq, src: torch.Tensor, tokens: torch.Tensor, *, interventions: Interventions = NO_INTERVENTIONS
) -> torch.Tensor:
    """Return how likely a model, in evaluation mode, finds answers, whoever wrote them: log P(tokens | source), nats.

    Args:
        src: (B, S) int64.
        tokens: (B, T) int64, PAD behind each answer's end.

    Returns:
        (B,) float.
    """
    tgt_in = F.pad(tokens[:, :-1], (1, 0), value=BOS_ID)
    log_probs = (
        model(src, tgt_in, interventions=interventions)[0].log_softmax(dim=-1).gather(-1, tokens[..., None]).squeeze(-1)
    )
    return log_probs.masked_fill(tokens == PAD_ID, 0.0).sum(dim=1)


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block and back on after it, if it was on."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
