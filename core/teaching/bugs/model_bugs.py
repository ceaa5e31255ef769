"""Bugs in the model: masks, positions, scales, residual connections, initial weights, and reported attention.

Most are permanent hooks, installed at the hook points of a built model (see ``core.models.hooks``). Names and shapes of
the parameters are unchanged, so a broken model is saved and loaded like any other.
"""

import math
import threading
from functools import partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from core.models import Seq2Seq
from core.models.additive_attention import SingleHeadAttention
from core.models.attention import MultiHeadAttention
from core.models.embeddings import Embedding
from core.models.gru import GRUSeq2Seq
from core.models.hooks import HookPoint
from core.models.layers import DecoderLayer, EncoderLayer, Layer
from core.teaching.bugs.bug import Bug

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class NoCausalMask(Bug):
    """Every target token attends to all target tokens, later ones included."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Open the causal mask of every decoder layer."""
        for layer in _modules(model, DecoderLayer):
            layer.self_attention.hook_mask.permanent = lambda mask: mask.any(dim=-2, keepdim=True)
        return model


class PadAttendedTo(Bug):
    """The padding mask of the source is True everywhere."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Open the mask of every attention over the source."""
        attentions: list[MultiHeadAttention | SingleHeadAttention] = [*_modules(model, SingleHeadAttention)]
        attentions += [layer.self_attention for layer in _modules(model, EncoderLayer)]
        attentions += [layer.cross_attention for layer in _modules(model, DecoderLayer) if layer.cross_attention]
        for attention in attentions:
            attention.hook_mask.permanent = torch.ones_like
        return model


class NoPositions(Bug):
    """No positional encoding is added to the embeddings."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Replace the positional encodings of every embedding by zeros."""
        for embedding in _modules(model, Embedding):
            embedding.hook_pos_embed.permanent = torch.zeros_like
        return model


class NoEmbeddingScaling(Bug):
    """Embeddings are not multiplied by √d_model, so positional encodings dominate them."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Set the scale of every embedding to 1."""
        for embedding in _modules(model, Embedding):
            embedding.scale = 1.0
        return model


class NoScoreScaling(Bug):
    """Scores are Q Kᵀ, not Q Kᵀ / √d_k."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Multiply the scores of every multi-head attention by √d_k, which undoes the division."""
        for attention in _modules(model, MultiHeadAttention):
            factor = math.sqrt(attention.w_q.out_features / attention.num_heads)
            attention.hook_attn_scores.permanent = partial(torch.mul, factor)
        return model


class SoftmaxOverQueries(Bug):
    """Softmax along the wrong axis: for each key, the weights of the queries sum to 1."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Replace the weights of every multi-head attention."""
        for attention in _modules(model, MultiHeadAttention):
            wrong = _QuerySoftmax()
            attention.hook_mask.permanent = wrong.read_mask
            attention.hook_attn_scores.permanent = wrong.read_scores
            attention.hook_pattern.permanent = wrong.pattern
        return model


class _QuerySoftmax(threading.local):
    """Computes the weights of one attention module with a softmax over the queries; threads may share the model."""

    mask: torch.Tensor | None = None
    scores: torch.Tensor

    def read_mask(self, mask: torch.Tensor) -> None:
        self.mask = mask

    def read_scores(self, scores: torch.Tensor) -> None:
        self.scores = scores

    def pattern(self, _: torch.Tensor) -> torch.Tensor:
        """Return the weights (B, H, Tq, Tk) that replace those of the module."""
        scores, mask = self.scores, self.mask
        self.mask = None  # the next call may have no mask
        if mask is None:
            return scores.softmax(dim=-2)
        return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-2) * mask


class NoResidual(Bug):
    """A sublayer's output replaces its input instead of being added to it."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Replace every residual connection by zeros."""
        for layer in _modules(model, Layer):
            layer.hook_skip.permanent = torch.zeros_like
        return model


class EncoderOverPad(Bug):
    """The encoder's final state is the one after the PAD."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Let the encoder of a GRU model read the PAD."""
        for gru in _modules(model, GRUSeq2Seq):
            gru.mask_padding = False
        return model


class HeadsAlike(Bug):
    """All heads of a layer start with the same weights, so they get the same gradients and stay identical."""

    @torch.no_grad()
    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Copy the weights of each layer's first head to its other heads."""
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


class SelfPlottedAsCross(Bug):
    """The model is correct, but the cross-attention weights that it reports are those of its self-attention."""

    def on_model(self, model: Seq2Seq) -> Seq2Seq:
        """Let hooks at the pattern of cross-attention read the self-attention weights of the same layer."""
        for layer in _modules(model, DecoderLayer):
            if layer.cross_attention is None:
                continue
            reported = _Reported(layer.cross_attention.hook_pattern.name)
            layer.cross_attention.hook_pattern = reported
            layer.self_attention.hook_pattern = _Source(layer.self_attention.hook_pattern.name, reported)
        return model


class _Reported(HookPoint):
    """The pattern of cross-attention: its hooks read another tensor than the model uses."""

    __slots__ = ("latest",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.latest = _Latest()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Run the hooks on the self-attention, cropped or padded to the keys of ``x``, and return ``x``."""
        if self.is_used:
            source, pattern = x.shape[-1], self.latest.pattern
            super().__call__(F.pad(pattern, (0, max(0, source - pattern.shape[-1])))[..., :source])
        return x


class _Source(HookPoint):
    """The pattern of self-attention, also computed if only cross-attention has hooks."""

    __slots__ = ("_reported",)

    def __init__(self, name: str, reported: _Reported) -> None:
        super().__init__()
        self.name = name
        self._reported = reported

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x``, or its replacement by its own hooks."""
        x = super().__call__(x)
        self._reported.latest.pattern = x
        return x

    @property
    def is_used(self) -> bool:
        """Whether a hook of this call reads the tensor, here or at the cross-attention."""
        return super().is_used or self._reported.is_used


class _Latest(threading.local):
    """The latest pattern of one attention module in this thread."""

    pattern: torch.Tensor


def _modules(model: nn.Module, kind: type[ModuleT]) -> list[ModuleT]:
    return [module for module in model.modules() if isinstance(module, kind)]
