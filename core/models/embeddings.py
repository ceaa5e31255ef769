"""Token embeddings with sinusoidal positions (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math

import torch
from torch import nn

from core.models.dropout import Dropout


def sinusoidal_positions(length: int, d_model: int) -> torch.Tensor:
    """Return the position table (length, d_model) float32: sine at even dimensions, cosine at odd ones.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000) / d_model))
    angle = position * frequency  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


class Embedding(nn.Module):
    """Turn token ids into vectors: embedding × √d_model, plus position where the model needs one, then dropout."""

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        max_seq_len: int,
        dropout: float,
        generator: torch.Generator | None,
        has_positions: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.scale = math.sqrt(d_model)
        self.max_seq_len = max_seq_len
        positions = sinusoidal_positions(max_seq_len, d_model).to(self.tokens.weight.device) if has_positions else None
        self.register_buffer("positions", positions, persistent=False)
        self.dropout = Dropout(dropout, generator)

    def forward(self, ids: torch.Tensor, *, start: int = 0) -> torch.Tensor:
        """Embed ids (B, T) int64, the first of which stands at position ``start``, to (B, T, D) float.

        Raises:
            ValueError: the sequence reaches beyond ``max_seq_len``.
        """
        end = start + ids.shape[1]
        if end > self.max_seq_len:
            raise ValueError(f"{end} tokens, BOS and EOS in, are more than max_seq_len={self.max_seq_len}")
        embedded = self.tokens(ids) * self.scale
        return self.dropout(embedded if self.positions is None else embedded + self.positions[start:end])
