"""The outputs of a model for a set of pairs, decoded once: exact match, BLEU and error rates are computed from them."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.evaluation.headline import headline_of
from core.evaluation.passes import DECODED, evaluation_mode, sequences_per_pass
from core.evaluation.translation_quality import (
    TranslationQuality,
    output_text,
    reference_texts,
    score_translations,
)
from core.generation import GREEDY, GenerationResult, Strategy, generate
from core.models import Seq2Seq
from core.tasks import Batch, Task, unpadded_batches
from core.text.vocab import EOS_ID, PAD_ID, until_eos


@dataclass(frozen=True)
class Outputs:
    """What a model decodes from the sources of a set of pairs.

    Attributes:
        pairs: the sources, N of them, and their references.
        tokens: (N, T) int64, the output for each source, EOS included, PAD after it.
        log_probs: (N, T) float, log-probability of each token in the distribution it was chosen from, nats; 0 for PAD.
    """

    pairs: Batch
    tokens: torch.Tensor
    log_probs: torch.Tensor

    @staticmethod
    def from_parts(pairs: Batch, parts: "Iterable[tuple[torch.Tensor, GenerationResult | Outputs]]") -> "Outputs":
        """Put outputs in the order of their pairs.

        Args:
            pairs: all pairs.
            parts: indices (K,) int64 of some pairs and what was decoded from them; together, the parts hold every pair
                once.
        """
        parts = list(parts)
        width = max((part.tokens.shape[1] for _, part in parts), default=0)
        tokens = pairs.src.new_full((len(pairs), width), PAD_ID)
        log_probs = torch.zeros(len(pairs), width, device=pairs.device)
        for indices, part in parts:
            tokens[indices, : part.tokens.shape[1]] = part.tokens
            log_probs[indices, : part.tokens.shape[1]] = part.log_probs.float()
        return Outputs(pairs, tokens, log_probs)

    def is_exact(self, task: Task | None = None) -> torch.Tensor:
        """Return which outputs equal a reference of their source, EOS included, (N,) bool.

        Args:
            task: knows all references of a source; None compares with those of the pairs alone.
        """
        exact = is_exact(self.tokens, with_eos(self.pairs.tgt_out))
        if task is None:
            return exact
        for row in (~exact).nonzero().flatten().tolist():
            ids = self.tokens[row].tolist()
            source = task.src_vocab.decode(until_eos(self.pairs.src[row].tolist())[1:])
            exact[row] = EOS_ID in ids and task.tgt_vocab.decode(until_eos(ids)) in task.references(source)
        return exact

    def exact_match(self, task: Task | None = None) -> float:
        """Return the share of outputs that equal a reference of their source, 0-1; see ``is_exact``."""
        return int(self.is_exact(task).sum()) / len(self.pairs)

    @property
    def mean_log_probs(self) -> torch.Tensor:
        """(N,) float: mean log-probability of an output's tokens, EOS included, nats."""
        return self.log_probs.sum(dim=1) / (self.tokens != PAD_ID).sum(dim=1).clamp(min=1)

    def texts(self, task: Task) -> list[str]:
        """Return the outputs as text; see ``core.evaluation.translation_quality.answer_text``."""
        return [output_text(task, ids) for ids in self.tokens.tolist()]

    def quality(self, task: Task) -> TranslationQuality | None:
        """Compute BLEU and chrF; None if the task's answers have no BLEU, see ``core.evaluation.headline``.

        Raises:
            LabError: sacrebleu is not installed.
            ValueError: there are no pairs.
        """
        tokenizer = headline_of(task).bleu_tokenizer
        if tokenizer is None:
            return None
        return score_translations(self.texts(task), reference_texts(task, self.pairs), tokenizer=tokenizer)


@torch.no_grad()
def decode_padded(model: Seq2Seq, pairs: Batch, *, strategy: Strategy = GREEDY, max_steps: int) -> Outputs:
    """Decode pairs in batches as they are padded. The model's training mode is left unchanged.

    With several hypotheses per source, the batches are smaller.

    Args:
        model: decodes in evaluation mode.
        pairs: with or without padding.
        strategy: decoding strategy.
        max_steps: maximum number of tokens, EOS included.
    """
    fitting = sequences_per_pass(model, max(pairs.src.shape[1], max_steps))
    batch_size = max(1, min(DECODED, fitting) // strategy.sequences_per_source)
    with evaluation_mode(model):
        return Outputs.from_parts(
            pairs,
            [
                (rows, generate(model, pairs.src[rows], max_steps=max_steps, strategy=strategy))
                for rows in torch.arange(len(pairs), device=pairs.device).split(batch_size)
            ],
        )


def decode_unpadded(
    model: Seq2Seq, pairs: Batch, *, strategy: Strategy = GREEDY, max_steps: int | None = None
) -> Outputs:
    """Decode pairs in batches of one source length, without padding, as a single typed input is decoded.

    Args:
        model: decodes in evaluation mode; its training mode is left unchanged.
        pairs: in any order.
        strategy: decoding strategy.
        max_steps: maximum number of tokens, EOS included; None, or more than the model's ``max_seq_len``, is that.
    """
    longest = model.max_seq_len if max_steps is None else min(max_steps, model.max_seq_len)
    return Outputs.from_parts(
        pairs,
        (
            (indices, decode_padded(model, batch, strategy=strategy, max_steps=longest))
            for indices, batch in unpadded_batches(pairs)
        ),
    )


def exact_match_unpadded(model: Seq2Seq, pairs: Batch, *, strategy: Strategy = GREEDY) -> float:
    """Return the exact match (0-1) when sources are decoded without padding, as a single typed input is.

    Equals ``Evaluation.exact_match`` unless the model attends to padding.
    """
    return decode_unpadded(model, pairs, strategy=strategy, max_steps=pairs.tgt_out.shape[1]).exact_match()


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
