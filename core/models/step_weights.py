"""The weights that ``StepDecoder`` computes with: those of a decoder, joined into few large products."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import nn

from core.models.attention import MultiHeadAttention
from core.models.embeddings import Embedding, Output
from core.models.layers import DecoderLayer


class LinearMap(Protocol):
    """A linear map and its activation, as ``kernels.PackedLinear``."""

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Map (B, K) to (B, N) float."""

    def columns(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Map (B, K) to columns (N, B) float, written to ``out`` if it is given, without the activation."""


MakeLinearMap = Callable[..., LinearMap]  # of weight (N, K), bias (N,) and, by default "none", activation


@dataclass(frozen=True)
class StepWeights:
    """The joined weights of a decoder.

    Attributes:
        layers: those of each layer.
        score: the output layer, from D to V.
    """

    layers: list["LayerWeights"]
    score: LinearMap

    @classmethod
    def of(
        cls, layers: nn.ModuleList, activation: str, output: Output, embedding: Embedding, linear: MakeLinearMap
    ) -> "StepWeights":
        """Join the weights of a decoder, as linear maps of a given kind.

        Args:
            layers: with multi-head attention and a feed-forward network of this activation.
            embedding: whose weights the output layer shares if it has none.
        """
        joined = [LayerWeights.of(cast(DecoderLayer, layer), activation, linear) for layer in layers]
        weight = embedding.output_weight() if output.weight is None else output.weight
        return cls(joined, linear(weight, output.bias))


@dataclass(frozen=True)
class LayerWeights:
    """A decoder layer with joined weights; queries are already divided by √K.

    Attributes:
        qkv, out: of self-attention, from D to 3 D and from D to D.
        cross_q, cross_kv, cross_out: of cross-attention, from D to D, 2 D and D.
        widen, narrow: of the feed-forward network; ``widen`` has its activation.
    """

    num_heads: int
    qkv: LinearMap
    out: LinearMap
    cross_q: LinearMap
    cross_kv: LinearMap
    cross_out: LinearMap
    widen: LinearMap
    narrow: LinearMap
    norm_self: Callable[[torch.Tensor], torch.Tensor]
    norm_cross: Callable[[torch.Tensor], torch.Tensor]
    norm_feed_forward: Callable[[torch.Tensor], torch.Tensor]

    @classmethod
    def of(cls, layer: DecoderLayer, activation: str, linear: MakeLinearMap) -> "LayerWeights":
        """Join the weights of a layer with cross-attention."""
        own, cross = layer.self_attention, cast(MultiHeadAttention, layer.cross_attention)
        scale = 1 / (math.sqrt(own.head_dim) * own.temperature)
        qkv_weight = torch.cat([own.w_q.weight * scale, own.w_k.weight, own.w_v.weight])
        qkv_bias = torch.cat([own.w_q.bias * scale, own.w_k.bias, own.w_v.bias])
        cross_kv_weight = torch.cat([cross.w_k.weight, cross.w_v.weight])
        cross_kv_bias = torch.cat([cross.w_k.bias, cross.w_v.bias])
        widen, narrow = layer.feed_forward.widen, layer.feed_forward.narrow
        return cls(
            num_heads=own.num_heads,
            qkv=linear(qkv_weight, qkv_bias),
            out=linear(own.w_o.weight, own.w_o.bias),
            cross_q=linear(cross.w_q.weight * scale, cross.w_q.bias * scale),
            cross_kv=linear(cross_kv_weight, cross_kv_bias),
            cross_out=linear(cross.w_o.weight, cross.w_o.bias),
            widen=linear(widen.weight, widen.bias, activation),
            narrow=linear(narrow.weight, narrow.bias),
            norm_self=norm_function(layer.norm_self),
            norm_cross=norm_function(layer.norm_cross),
            norm_feed_forward=norm_function(layer.norm_feed_forward),
        )


def norm_function(norm: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function of a norm on (B, D): for a layer norm the operation, since calling it takes twice as long.

    Other modules get (B, 1, D), as from the model: a plug-in's may do something else with two dimensions.
    """
    if type(norm) is not nn.LayerNorm or norm._forward_hooks or norm._forward_pre_hooks or "forward" in vars(norm):
        return lambda x: norm(x[:, None])[:, 0]
    return lambda x: torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
