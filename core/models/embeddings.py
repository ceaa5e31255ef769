"""Tokens to vectors, and vectors to scores of tokens (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from core.models.dropout import Dropout
from core.models.positions import sinusoidal_positions

Positions = Literal["sinusoidal", "learned", "none", "alibi", "vo-rope"]
TieEmbeddings = Literal["none", "output", "all"]


class Embedding(nn.Module):
    """Turn token ids into vectors: embedding × √d_model, plus position if there are any to add, then dropout."""

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        max_seq_len: int,
        dropout: float,
        generator: torch.Generator | None,
        positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal",
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.scale = math.sqrt(d_model)
        self.max_seq_len = max_seq_len
        if positions == "learned":
            self.positions = nn.Parameter(torch.empty(max_seq_len, d_model))
        else:
            sines = sinusoidal_positions(max_seq_len, d_model) if positions == "sinusoidal" else None
            self.register_buffer("positions", sines, persistent=False)
        self.dropout = Dropout(dropout, generator)

    def forward(self, ids: torch.Tensor, *, start: int | torch.Tensor = 0) -> torch.Tensor:
        """Embed ids (B, T) int64 to (B, T, D) float.

        Args:
            start: the place of the first id; (B,) int64 where it differs between the sequences, which must fit.

        Raises:
            ValueError: sequences that start at one place reach beyond ``max_seq_len``.
        """
        if isinstance(start, int) and start + ids.shape[1] > self.max_seq_len:
            end = start + ids.shape[1]
            raise ValueError(f"{end} tokens, BOS and EOS in, are more than max_seq_len={self.max_seq_len}")
        embedded = self.tokens(ids) * self.scale
        if self.positions is not None:
            embedded = embedded + self._positions(start, ids.shape[1])
        return self.dropout(embedded)

    def _positions(self, start: int | torch.Tensor, length: int) -> torch.Tensor:
        if isinstance(start, int):
            return self.positions[start : start + length]
        return self.positions[start[:, None] + torch.arange(length, device=start.device)]


def embeddings(
    *, src_vocab_size: int, tgt_vocab_size: int, tie_embeddings: TieEmbeddings, positions: Positions, **common: Any
) -> tuple[Embedding | None, Embedding]:
    """Return the source's embedding, None where it shares the target's, and the target's.

    Args:
        common: what else ``Embedding`` asks for.

    Raises:
        ValueError: both are to be shared, but the two vocabularies differ in size.
    """
    added = positions if positions in ("sinusoidal", "learned") else "none"
    target = Embedding(vocab_size=tgt_vocab_size, positions=added, **common)
    if tie_embeddings != "all":
        return Embedding(vocab_size=src_vocab_size, positions=added, **common), target
    if src_vocab_size != tgt_vocab_size:
        raise ValueError(f"tie_embeddings='all' needs one vocabulary, not {src_vocab_size} and {tgt_vocab_size} tokens")
    return None, target


class Output(nn.Linear):
    """Score every token: x Wᵀ + b, with W of its own or the target embedding's (Press & Wolf 2017)."""

    def __init__(self, *, d_model: int, vocab_size: int, is_tied: bool = False) -> None:
        super().__init__(d_model, vocab_size)
        if is_tied:
            self.weight = None

    def forward(self, x: torch.Tensor, embedding: Embedding) -> torch.Tensor:
        """Map states (B, T, D) to logits (B, T, V)."""
        return F.linear(x, embedding.tokens.weight if self.weight is None else self.weight, self.bias)
