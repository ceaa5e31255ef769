"""The encoder's and the decoder's layer (Vaswani et al. 2017, section 3.1 and figure 1)."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from core.models.attention import KeysValues, MultiHeadAttention
from core.models.dropout import Dropout
from core.models.heads import UNEDITED, LayerEdits
from core.models.positions import Rotation

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu"]


class FeedForward(nn.Module):
    """Two linear maps with a ReLU (Vaswani et al. 2017, eq. 2) or a GELU between, at each position alone."""

    def __init__(self, *, d_model: int, d_ff: int, activation: Activation = "relu") -> None:
        super().__init__()
        self.widen = nn.Linear(d_model, d_ff)
        self.narrow = nn.Linear(d_ff, d_model)
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) float to the same shape."""
        return self.narrow(self.activation(self.widen(x)))


class Layer(nn.Module):
    """Sublayers, each with a residual connection and a layer norm: what every layer is made of.

    The norm stands behind the addition, as in the paper ("post"), or before the sublayer, so that states pass through
    the whole stack unchanged but for what is added ("pre"; Xiong et al. 2020).
    """

    def __init__(self, *, dropout: float, norm: Norm, generator: torch.Generator | None) -> None:
        super().__init__()
        self.is_pre_norm = norm == "pre"
        self.dropout = Dropout(dropout, generator)

    def asked(self, x: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
        """Return what a sublayer is given of the states (B, T, D)."""
        return norm(x) if self.is_pre_norm else x

    def added(self, x: torch.Tensor, change: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
        """Add what a sublayer gave to the states (B, T, D)."""
        x = x + self.dropout(change)
        return x if self.is_pre_norm else norm(x)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward."""

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.0,
        norm: Norm = "post",
        activation: Activation = "relu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(dropout=dropout, norm=norm, generator=generator)
        self.self_attention = MultiHeadAttention(
            d_model=d_model, num_heads=num_heads, dropout=dropout, generator=generator
        )
        self.feed_forward = FeedForward(d_model=d_model, d_ff=d_ff, activation=activation)
        self.norm_attention = nn.LayerNorm(d_model)
        self.norm_feed_forward = nn.LayerNorm(d_model)

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        rotation: Rotation | None = None,
        interventions: LayerEdits = UNEDITED,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Map source states (B, S, D) to the same shape; also the weights (B, H, S, S) if asked.

        Args:
            mask: (B, 1, 1, S) bool, True where the source is not PAD.
            bias: float, broadcastable to (B, H, S, S), added to the attention scores.
            rotation: of the places of the states.
            interventions: what is done to this layer's heads.
        """
        asked = self.asked(x, self.norm_attention)
        attended, weights = self.self_attention(
            asked,
            self.self_attention.keys_values(asked, rotation),
            mask,
            bias=bias,
            rotation=rotation,
            edit=interventions.get("encoder"),
            need_weights=need_weights,
        )
        x = self.added(x, attended, self.norm_attention)
        widened = self.feed_forward(self.asked(x, self.norm_feed_forward))
        return self.added(x, widened, self.norm_feed_forward), weights


@dataclass(frozen=True)
class LayerCache:
    """Keys and values that a decoder layer need not compute again.

    Attributes:
        memory: keys and values of the encoder's output, each (B, H, S, K), once for all rows that share a source; None
            where there is no encoder.
        past: keys and values of the tokens read so far, each (B, H, T, K); None before the first.
    """

    memory: KeysValues | None
    past: KeysValues | None = None

    def extended(self, new: KeysValues) -> "LayerCache":
        """Return the cache with the keys and values of further tokens behind the past ones."""
        if self.past is None:
            return LayerCache(self.memory, new)
        key, value = (torch.cat(pair, dim=2) for pair in zip(self.past, new, strict=True))
        return LayerCache(self.memory, (key, value))

    def rows(self, index: torch.Tensor) -> "LayerCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        memory, past = (pair and _rows(pair, index) for pair in (self.memory, self.past))
        return LayerCache(memory, past)

    def reordered(self, index: torch.Tensor) -> "LayerCache":
        """Return the cache of rows that go on from others of their sources; see ``Cache.reordered``."""
        return LayerCache(self.memory, self.past and _rows(self.past, index))


def _rows(pair: KeysValues, index: torch.Tensor) -> KeysValues:
    key, value = pair
    return key.index_select(0, index), value.index_select(0, index)


class DecoderLayer(Layer):
    """Causal self-attention, cross-attention to the encoder's output if there is one, then feed-forward."""

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.0,
        norm: Norm = "post",
        activation: Activation = "relu",
        generator: torch.Generator | None = None,
        has_encoder: bool = True,
    ) -> None:
        super().__init__(dropout=dropout, norm=norm, generator=generator)
        sizes = {"d_model": d_model, "num_heads": num_heads, "dropout": dropout, "generator": generator}
        self.self_attention = MultiHeadAttention(**sizes)
        self.cross_attention = MultiHeadAttention(**sizes) if has_encoder else None
        self.feed_forward = FeedForward(d_model=d_model, d_ff=d_ff, activation=activation)
        self.norm_self = nn.LayerNorm(d_model)
        self.norm_cross = nn.LayerNorm(d_model) if has_encoder else None
        self.norm_feed_forward = nn.LayerNorm(d_model)

    def new_cache(self, memory: torch.Tensor | None) -> LayerCache:
        """Project the encoder's output (B, S, D), if there is one, once for all the steps to come."""
        if memory is None:
            return LayerCache(None)
        key, value = self.cross_attention.keys_values(memory)
        return LayerCache((key.contiguous(), value.contiguous()))  # or every step would put them in order anew

    def forward(
        self,
        x: torch.Tensor,
        cache: LayerCache,
        *,
        tgt_mask: torch.Tensor | None,
        src_mask: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        rotation: Rotation | None = None,
        interventions: LayerEdits = UNEDITED,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, LayerCache, torch.Tensor | None, torch.Tensor | None]:
        """Map the states of the next T target tokens, (B, T, D), to the same shape.

        Args:
            cache: what earlier calls left, so that earlier tokens are attended to.
            tgt_mask: bool, broadcastable to (B, H, T, past + T), True where a token may see another; None lets it see
                all.
            src_mask: (B, 1, 1, S) bool, True where the source is not PAD; None where there is no encoder.
            bias: float, broadcastable to (B, H, T, past + T), added to the scores of the self-attention.
            rotation: of the places of the T tokens, for the self-attention.
            interventions: what is done to this layer's heads.

        Returns:
            States (B, T, D), the cache with the new tokens in it, and the self-attention weights
            (B, H, T, past + T) and cross-attention weights (B, H, T, S), or None.
        """
        asked = self.asked(x, self.norm_self)
        cache = cache.extended(self.self_attention.keys_values(asked, rotation))
        attended, self_weights = self.self_attention(
            asked,
            cache.past,
            tgt_mask,
            bias=bias,
            rotation=rotation,
            edit=interventions.get("decoder"),
            need_weights=need_weights,
        )
        x, cross_weights = self.added(x, attended, self.norm_self), None
        if self.cross_attention is not None:
            asked = self.asked(x, self.norm_cross)
            attended, cross_weights = self.cross_attention(
                asked, cache.memory, src_mask, edit=interventions.get("cross"), need_weights=need_weights
            )
            x = self.added(x, attended, self.norm_cross)
        widened = self.feed_forward(self.asked(x, self.norm_feed_forward))
        return self.added(x, widened, self.norm_feed_forward), cache, self_weights, cross_weights
