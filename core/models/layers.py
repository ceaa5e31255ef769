"""Encoder and decoder layers (Vaswani et al. 2017, section 3.1 and figure 1)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from core.config.sections import AttentionScale, BlocksConfig
from core.models.attention import MultiHeadAttention
from core.models.hooks import HookPoint
from core.models.kernels import Dropout
from core.models.positions import NO_POSITIONS, RelativePositions
from core.models.recomputation import RecomputedModule
from core.models.seq2seq import LayerCache
from core.models.shape_checks import check_states

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Position-wise feed-forward network: two linear maps with a ReLU (Vaswani et al. 2017, eq. 2), GELU or SiLU.

    A gated one multiplies by the activation of a third map (Shazeer 2020). The dropout of the output is the layer's.
    """

    def __init__(self, config: BlocksConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.widen = nn.Linear(config.d_model, config.d_ff)
        self.narrow = nn.Linear(config.d_ff, config.d_model)
        self.gate = nn.Linear(config.d_model, config.d_ff) if config.feed_forward_block == "gated" else None
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout, generator)
        self.hook_post, self.hook_out = HookPoint(), HookPoint()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, D) float to the same shape."""
        check_states("x", x, self.widen.in_features)
        gate, wide = (self.widen, None) if self.gate is None else (self.gate, self.widen(x))
        hidden = self.activation(gate(x))
        hidden = hidden if wide is None else hidden * wide
        return self.hook_out(self.narrow(self.dropout(self.hook_post(hidden))))


def build_attention(
    config: BlocksConfig, generator: torch.Generator | None, *, is_cross: bool = False
) -> MultiHeadAttention:
    """Return a new attention module: multi-head, a plugin's block, or linear self-attention."""
    sizes = config.d_model, config.num_heads, config.dropout, generator
    if getattr(config, "attention", "full") == "linear" and not is_cross:
        from core.models.linear_attention import LinearAttention  # on demand: few models have it

        return LinearAttention(*sizes)
    block = config.build_block("attention", generator)
    if block is None:
        scale: AttentionScale = getattr(config, "attention_scale", "sqrt")
        block = MultiHeadAttention(*sizes, scale=scale)  # a window is a matter of the mask
        block.temperature = config.attention_temperature
    return block


def build_feed_forward(config: BlocksConfig, generator: torch.Generator | None) -> FeedForward:
    """Return a new feed-forward network: the preset's block, or the paper's by default."""
    block = config.build_block("feed_forward", generator)
    return FeedForward(config, generator) if block is None else block


def build_norm(config: BlocksConfig, generator: torch.Generator | None) -> nn.Module:
    """Return a new norm: the preset's block, RMSNorm (Zhang and Sennrich 2019), or layer normalization."""
    block = config.build_block("norm", generator)
    if block is not None:  # an empty nn.Sequential is false
        return block
    if config.norm_block == "rms-norm":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps or 1e-6)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps or 1e-5)


class Layer(RecomputedModule):
    """Residual connections and layer norms around sublayers, in the order given by ``config.norm``.

    The norm comes after the addition, as in the paper ("post"), or before the sublayer ("pre"; Xiong et al. 2020). With
    "pre", sublayers only add to the residual stream, and the stack ends in a norm.
    """

    def __init__(self, config: BlocksConfig, generator: torch.Generator | None) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.generator, self.dropout = generator, Dropout(config.dropout, generator)
        self.hook_resid_pre, self.hook_resid_mid, self.hook_resid_post = (HookPoint() for _ in range(3))
        self.hook_skip = HookPoint()  # shared by all sublayers, so that one hook removes every residual connection

    def sublayer_input(self, x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        """Return ``norm(x)`` if pre-norm, else ``x``, (B, T, D); pass the same norm to ``residual``."""
        return norm(x) if self.is_pre_norm else x

    def residual(self, x: torch.Tensor, output: torch.Tensor, norm: nn.Module) -> torch.Tensor:
        """Return x + dropout(output), (B, T, D), normalized if post-norm."""
        x = self.hook_skip(x) + self.dropout(output)
        return x if self.is_pre_norm else norm(x)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward."""

    def __init__(self, config: BlocksConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.self_attention = build_attention(config, generator)
        self.feed_forward = build_feed_forward(config, generator)
        self.norm_attention, self.norm_feed_forward = (build_norm(config, generator) for _ in range(2))

    def forward(self, x: torch.Tensor, mask: torch.Tensor, positions: RelativePositions = NO_POSITIONS) -> torch.Tensor:
        """Map source states (B, S, D) to the same shape.

        Args:
            mask: bool, broadcastable to (B, H, S, S); True = may attend.
        """
        x = self.hook_resid_pre(x)
        y = self.sublayer_input(x, self.norm_attention)
        keys_values = self.self_attention.keys_values(y, positions)
        attended = self.self_attention(y, keys_values, mask, positions)
        x = self.hook_resid_mid(self.residual(x, attended, self.norm_attention))
        y = self.sublayer_input(x, self.norm_feed_forward)
        return self.hook_resid_post(self.residual(x, self.feed_forward(y), self.norm_feed_forward))


@dataclass(frozen=True)
class DecoderContext:
    """Masks (True = may attend) and positions that a decode call passes to every decoder layer.

    Attributes:
        tgt_mask: bool, broadcastable to (B, H, T, P + T); None lets every token attend to all.
        src_mask: (B, 1, 1, S) bool, True where the source is not PAD; None without an encoder.
        positions: relative positions of queries and keys in self-attention.
    """

    tgt_mask: torch.Tensor | None = None
    src_mask: torch.Tensor | None = None
    positions: RelativePositions = NO_POSITIONS


class DecoderLayer(Layer):
    """Causal self-attention, cross-attention to the encoder's output if there is one, then feed-forward."""

    def __init__(
        self, config: BlocksConfig, generator: torch.Generator | None = None, *, has_encoder: bool = True
    ) -> None:
        super().__init__(config, generator)
        self.self_attention = build_attention(config, generator)
        self.cross_attention = build_attention(config, generator, is_cross=True) if has_encoder else None
        self.feed_forward = build_feed_forward(config, generator)
        self.norm_self = build_norm(config, generator)
        self.norm_cross = build_norm(config, generator) if has_encoder else nn.Identity()
        self.norm_feed_forward = build_norm(config, generator)
        if has_encoder:
            self.hook_resid_cross = HookPoint()  # the residual stream after cross-attention

    def new_cache(self, states: torch.Tensor) -> LayerCache:
        """Return an empty cache with the keys and values of the encoder's output (B, S, D), for all steps."""
        if self.cross_attention is None:
            return LayerCache(None)
        key, value = self.cross_attention.keys_values(states)
        return LayerCache((key.contiguous(), value.contiguous()))  # views would be copied again at every step

    def forward(self, x: torch.Tensor, cache: LayerCache, context: DecoderContext) -> tuple[torch.Tensor, LayerCache]:
        """Return the states (B, T, D) of the next T target tokens after the layer, and the cache extended by them."""
        x = self.hook_resid_pre(x)
        y = self.sublayer_input(x, self.norm_self)
        cache = cache.extended(self.self_attention.keys_values(y, context.positions))
        attended = self.self_attention(y, cache.target, context.tgt_mask, context.positions)
        x = self.hook_resid_mid(self.residual(x, attended, self.norm_self))
        if self.cross_attention is not None and cache.source is not None:
            y = self.sublayer_input(x, self.norm_cross)
            attended = self.cross_attention(y, cache.source, context.src_mask)
            x = self.hook_resid_cross(self.residual(x, attended, self.norm_cross))
        y = self.sublayer_input(x, self.norm_feed_forward)
        return self.hook_resid_post(self.residual(x, self.feed_forward(y), self.norm_feed_forward)), cache
