"""Bugs in the model: masks, positions, scales, residual connections, initial weights, and reported attention.

Each is added to a built model, mostly as a permanent hook. Names and shapes of the parameters stay, so a broken model is
saved and loaded like any other.
"""

import math
import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from core.models import Seq2Seq
from core.models.attention import AdditiveAttention, MultiHeadAttention, masked_softmax
from core.models.embeddings import Embedding
from core.models.hooks import HookPoint
from core.models.layers import DecoderLayer, EncoderLayer, Layer
from core.teaching.bugs.bug import Bug


class NoCausalMask(Bug):
    """Every target token attends to all that any of them may attend to, later ones included."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Open the mask of every decoder layer's self-attention."""
        for layer in _modules(model, DecoderLayer):
            layer.self_attention.hook_mask.permanent = lambda mask: mask.any(dim=-2, keepdim=True)
        return model


class PadAttendedTo(Bug):
    """The mask of the source lets PAD through."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Replace the source's mask in self-attention of the encoder and in cross-attention."""
        attentions = [layer.self_attention for layer in _modules(model, EncoderLayer)]
        attentions += [layer.cross_attention for layer in _modules(model, DecoderLayer) if layer.cross_attention]
        for attention in attentions + _modules(model, AdditiveAttention):
            attention.hook_mask.permanent = torch.ones_like
        return model


class _OtherEmbeddings(Bug):
    """A bug in one attribute of every embedding."""

    attribute: str
    value: float | None

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Give the attribute of every embedding another value."""
        for embedding in _modules(model, Embedding):
            setattr(embedding, self.attribute, self.value)
        return model


class NoPositions(_OtherEmbeddings):
    """Embeddings say which token, and not where."""

    attribute, value = "positions", None


class NoEmbeddingScaling(_OtherEmbeddings):
    """Embeddings go in as they are, so that the positions drown them."""

    attribute, value = "scale", 1.0


class NoScoreScaling(Bug):
    """Scores are Q Kᵀ, not Q Kᵀ / √d_k."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Undo the division."""
        for attention in _modules(model, MultiHeadAttention):
            factor = math.sqrt(attention.w_q.out_features / attention.num_heads)
            attention.hook_attn_scores.permanent = lambda scores, factor=factor: scores * factor
        return model


class _OverQueries(threading.local):
    """Computes one attention module's weights with a softmax over the queries, from its mask and scores."""

    mask: torch.Tensor | None = None
    scores: torch.Tensor

    def read_mask(self, mask: torch.Tensor) -> None:
        self.mask = mask

    def read_scores(self, scores: torch.Tensor) -> None:
        self.scores = scores

    def pattern(self, _: torch.Tensor) -> torch.Tensor:
        mask = None if self.mask is None else self.mask.expand_as(self.scores).transpose(-2, -1)
        self.mask = None  # the next call may have none
        return masked_softmax(self.scores.transpose(-2, -1), mask).transpose(-2, -1)


class SoftmaxOverQueries(Bug):
    """Softmax along the wrong axis: for each key, the weights of the queries sum to 1."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Replace the weights of every multi-head attention."""
        for attention in _modules(model, MultiHeadAttention):
            wrong = _OverQueries()
            attention.hook_mask.permanent = wrong.read_mask
            attention.hook_attn_scores.permanent = wrong.read_scores
            attention.hook_pattern.permanent = wrong.pattern
        return model


class NoResidual(Bug):
    """A sublayer's output replaces its input instead of being added to it."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Silence the residual connections."""
        for layer in _modules(model, Layer):
            layer.hook_skip.permanent = torch.zeros_like
        return model


class EncoderOverPad(Bug):
    """The encoder's final state is the one after the PAD."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Let the encoder read the PAD."""
        model.mask_padding = False
        return model


class HeadsAlike(Bug):
    """Heads that begin alike get the same gradient, so they stay alike."""

    @torch.no_grad()
    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Give the weights of each layer's first head to all its heads."""
        for attention in _modules(model, MultiHeadAttention):
            heads = attention.num_heads
            for linear in (attention.w_q, attention.w_k, attention.w_v):
                for parameter in (linear.weight, linear.bias):
                    first, *others = parameter.chunk(heads)
                    for other in others:
                        other.copy_(first)
            first, *others = attention.w_o.weight.chunk(heads, dim=1)
            for other in others:
                other.copy_(first)
        return model


class _Noting(HookPoint):
    """Notes a tensor for another point, which reports it instead of its own."""

    __slots__ = ("reported_at", "shared")

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.shared = name, threading.local()
        self.reported_at: HookPoint | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = super().__call__(x)
        self.shared.pattern = x
        return x

    @property
    def is_used(self) -> bool:
        return super().is_used or (self.reported_at is not None and self.reported_at.is_used)


class _Reporting(HookPoint):
    """Lets hooks read the tensor of another point instead of the one that is used."""

    __slots__ = ("source",)

    def __init__(self, name: str, source: _Noting) -> None:
        super().__init__()
        self.name, self.source = name, source
        source.reported_at = self

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        width, reported = x.shape[-1], self.source.shared.pattern
        super().__call__(F.pad(reported, (0, max(0, width - reported.shape[-1])))[..., :width])
        return x


class SelfPlottedAsCross(Bug):
    """The model is right; what it reports as cross-attention is its self-attention."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Let recorders of cross-attention read the weights of the layer's self-attention."""
        for layer in _modules(model, DecoderLayer):
            noting = _Noting(layer.self_attention.hook_pattern.name)
            layer.self_attention.hook_pattern = noting
            layer.cross_attention.hook_pattern = _Reporting(layer.cross_attention.hook_pattern.name, noting)
        return model


def _modules(model: nn.Module, kind: type[nn.Module]) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]
