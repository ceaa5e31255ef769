"""The encoder's and the decoder's layer (Vaswani et al. 2017, section 3.1 and figure 1), post-norm."""

from dataclasses import dataclass

import torch
from torch import nn

from core.models.attention import KeysValues, MultiHeadAttention
from core.models.dropout import Dropout


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between, at each position alone (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, *, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.widen = nn.Linear(d_model, d_ff)
        self.narrow = nn.Linear(d_ff, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) float to the same shape."""
        return self.narrow(self.widen(x).relu())


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; each with a residual connection and layer norm."""

    def __init__(
        self, *, d_model: int, num_heads: int, d_ff: int, dropout: float, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(
            d_model=d_model, num_heads=num_heads, dropout=dropout, generator=generator
        )
        self.feed_forward = FeedForward(d_model=d_model, d_ff=d_ff)
        self.norm_attention = nn.LayerNorm(d_model)
        self.norm_feed_forward = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout, generator)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor, *, need_weights: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Map source states (B, S, D) to the same shape; also the weights (B, H, S, S) if asked.

        Args:
            mask: (B, 1, 1, S) bool, True where the source is not PAD.
        """
        attended, weights = self.self_attention(x, self.self_attention.keys_values(x), mask, need_weights=need_weights)
        x = self.norm_attention(x + self.dropout(attended))
        x = self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))
        return x, weights


@dataclass(frozen=True)
class LayerCache:
    """Keys and values that a decoder layer need not compute again.

    Attributes:
        memory: keys and values of the encoder's output, each (B, H, S, K).
        past: keys and values of the target tokens read so far, each (B, H, T, K); None before the first.
    """

    memory: KeysValues
    past: KeysValues | None = None

    def extended(self, new: KeysValues) -> "LayerCache":
        """Return the cache with the keys and values of further tokens behind the past ones."""
        if self.past is None:
            return LayerCache(self.memory, new)
        key, value = (torch.cat(pair, dim=2) for pair in zip(self.past, new, strict=True))
        return LayerCache(self.memory, (key, value))

    def rows(self, index: torch.Tensor) -> "LayerCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        memory, past = (pair and (pair[0][index], pair[1][index]) for pair in (self.memory, self.past))
        return LayerCache(memory, past)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the encoder's output, then feed-forward."""

    def __init__(
        self, *, d_model: int, num_heads: int, d_ff: int, dropout: float, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        sizes = {"d_model": d_model, "num_heads": num_heads, "dropout": dropout, "generator": generator}
        self.self_attention = MultiHeadAttention(**sizes)
        self.cross_attention = MultiHeadAttention(**sizes)
        self.feed_forward = FeedForward(d_model=d_model, d_ff=d_ff)
        self.norm_self = nn.LayerNorm(d_model)
        self.norm_cross = nn.LayerNorm(d_model)
        self.norm_feed_forward = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout, generator)

    def new_cache(self, memory: torch.Tensor) -> LayerCache:
        """Project the encoder's output (B, S, D) once for all the steps to come."""
        return LayerCache(self.cross_attention.keys_values(memory))

    def forward(
        self,
        x: torch.Tensor,
        cache: LayerCache,
        *,
        tgt_mask: torch.Tensor | None,
        src_mask: torch.Tensor,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, LayerCache, torch.Tensor | None, torch.Tensor | None]:
        """Map the states of the next T target tokens, (B, T, D), to the same shape.

        Args:
            cache: what earlier calls left, so that earlier tokens are attended to.
            tgt_mask: (T, past + T) bool, True where a target token may see another; None lets it see all.
            src_mask: (B, 1, 1, S) bool, True where the source is not PAD.

        Returns:
            States (B, T, D), the cache with the new tokens in it, and the self-attention weights
            (B, H, T, past + T) and cross-attention weights (B, H, T, S), or None.
        """
        cache = cache.extended(self.self_attention.keys_values(x))
        attended, self_weights = self.self_attention(x, cache.past, tgt_mask, need_weights=need_weights)
        x = self.norm_self(x + self.dropout(attended))
        attended, cross_weights = self.cross_attention(x, cache.memory, src_mask, need_weights=need_weights)
        x = self.norm_cross(x + self.dropout(attended))
        x = self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))
        return x, cache, self_weights, cross_weights
