"""Attention, written from tensor operations: multi-head (Vaswani et al. 2017) and additive (Bahdanau et al. 2015).

Shape letters, here and in the other modules: B batch, S source, T target, D d_model, H heads, K d_k,
V vocabulary, L layers; Tq queries and Tk keys where attention serves both. Masks are boolean and say where
one *may* attend.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from core.models.dropout import Dropout
from core.models.heads import AttentionEdit
from core.models.positions import Rotation

KeysValues = tuple[torch.Tensor, torch.Tensor]
_KEYS_AT_ONCE = 16  # the CPU's softmax takes rows of fewer numbers one by one, in several times as long


@dataclass(frozen=True)
class AttentionMaps:
    """Where every head of every layer looked: after softmax and forcing, before dropout, detached.

    Attributes:
        encoder: (L, B, H, S, S) float, or None if the model has no such heads.
        decoder: (L, B, H, T, T) float, or None; of a model without an encoder (L, B, H, T, S + T), the source first.
        cross: (L, B, H, T, S) float, or None.
    """

    encoder: torch.Tensor | None
    decoder: torch.Tensor | None
    cross: torch.Tensor | None

    def over_source(self, length: int) -> torch.Tensor | None:
        """Return where writing looked in a source of that many tokens, (L, B, H, T, S), or None.

        That is cross-attention or, of a decoder that read the source itself, the source's part of its self-attention.
        """
        if self.cross is not None or self.decoder is None:
            return self.cross
        return self.decoder[..., :length]


def attention_weights(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute softmax(Q Kᵀ / √d_k), the weights of Vaswani et al. 2017, eq. 1.

    Args:
        query: (B, H, Tq, K) float.
        key: (B, H, Tk, K) float; fewer than B where several rows of queries, one behind the other, share one of keys.
        mask: bool, broadcastable to (B, H, Tq, Tk); True = may attend.
        bias: float, broadcastable to the same; added to the scores.

    Returns:
        (B, H, Tq, Tk) float; each row sums to 1, or is all zeros where nothing may be attended to.
    """
    scores = _product(query, key.transpose(-2, -1)) / math.sqrt(query.shape[-1])
    return masked_softmax(scores if bias is None else scores + bias, mask)


def _product(rows: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """Return (B · N, H, T, X) rows times (B, H, X, Y) matrices, each of them for N, the beams of one source."""
    if rows.shape[0] == shared.shape[0]:
        return rows @ shared
    together = rows.unflatten(0, (shared.shape[0], -1)).transpose(1, 2)  # (B, H, N, T, X)
    products = together.flatten(2, 3) @ shared
    return products.unflatten(2, together.shape[2:4]).transpose(1, 2).flatten(0, 1)


def masked_softmax(scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Turn scores (…, Tk) float into weights over the keys that the mask, broadcastable to them, lets through.

    Returns:
        Float of the same shape; each row sums to 1, or is all zeros where nothing may be attended to.
    """
    if mask is None:
        return _softmax(scores)
    # The lowest finite number, not -inf: a row without any key would turn into NaN, here and in its gradient.
    return _softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min)) * mask


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last dimension; on a CPU, that of many short rows for all of them side by side."""
    if _are_taken_one_by_one(scores.shape[-1], scores.device):
        return scores.movedim(-1, 0).softmax(dim=0).movedim(0, -1)
    return scores.softmax(dim=-1)


def _are_taken_one_by_one(keys: int, device: torch.device) -> bool:
    """Tell whether that few keys are slow; a graph that is exported is for any number of them."""
    return device.type == "cpu" and not torch.compiler.is_exporting() and keys < _KEYS_AT_ONCE


class MultiHeadAttention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), self- and cross-attention alike.

    All heads run as one batched product. The weights are computed explicitly when they are asked for, when dropout
    falls on them or a head is edited, and for a single query, for which that is the quicker way; otherwise PyTorch's
    fused kernel gives the same output without storing them.

    Args:
        d_model: width of queries, keys and output.
        num_heads: heads, each of width d_k = d_model / num_heads.
        dropout: share of the weights zeroed in training.
        generator: source of the dropout.
    """

    def __init__(
        self, *, d_model: int, num_heads: int, dropout: float = 0.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model={d_model} must be divisible by num_heads={num_heads}")
        self.num_heads = num_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout, generator)

    def keys_values(self, x: torch.Tensor, rotation: Rotation | None = None) -> KeysValues:
        """Project (B, Tk, D) states to keys and values, each (B, H, Tk, K), to attend to once or many times.

        Args:
            rotation: turns the values; whoever attends to them turns back.
        """
        key, value = self._split_heads(self.w_k(x)), self._split_heads(self.w_v(x))
        return key, value if rotation is None else rotation.turned(value)

    def forward(
        self,
        x: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor | None,
        *,
        bias: torch.Tensor | None = None,
        rotation: Rotation | None = None,
        edit: AttentionEdit | None = None,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Let every position of ``x`` attend to keys and values.

        Args:
            x: (B, Tq, D) float, the states that ask.
            keys_values: what ``keys_values`` returned for the states that are looked at.
            mask: bool, broadcastable to (B, H, Tq, Tk); True = may attend; None lets all attend to all.
            bias: float, broadcastable to the same; added to the scores before the softmax.
            rotation: turns back what was gathered, by the places of those that ask.
            edit: what is done to the heads: forced ones look elsewhere, knocked-out ones give something else to w_o.
            need_weights: also return the weights, as they were used.

        Returns:
            (B, Tq, D) output, and (B, H, Tq, Tk) weights or None.
        """
        query, (key, value) = self._split_heads(self.w_q(x)), keys_values
        if need_weights or self.dropout.is_active or edit is not None or query.shape[-2] == 1:
            weights = attention_weights(query, key, mask, bias)
            if edit is not None:
                weights = edit.forced(weights, mask)
            heads = _product(self.dropout(weights), value)  # (B, H, Tq, K)
        else:
            weights = None
            heads = _fused(query, key, value, _scores_added(mask, bias))
        if rotation is not None:
            heads = rotation.turned_back(heads)
        if edit is not None:
            heads = edit.ablated(heads)
        output = self.w_o(heads.transpose(1, 2).flatten(2))  # (B, Tq, D)
        return output, weights.detach() if need_weights else None

    def _split_heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, T, K)


def _fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
    """Attend with PyTorch's fused kernel, on a CPU as fast to a few keys as to ``_KEYS_AT_ONCE``."""
    if added is not None and _are_taken_one_by_one(key.shape[-2], key.device):
        missing = _KEYS_AT_ONCE - key.shape[-2]
        key, value = (F.pad(each, (0, 0, 0, missing)) for each in (key, value))
        forbidden = False if added.dtype == torch.bool else -math.inf
        added = F.pad(added, (0, missing), value=forbidden)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=added)


def _scores_added(mask: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor | None:
    """Return a mask and a bias as the one tensor that the fused kernel takes: a bias of minus infinity forbids."""
    if mask is None or bias is None:
        return mask if bias is None else bias
    return bias.masked_fill(~mask, -math.inf)


class AdditiveAttention(nn.Module):
    """Additive attention, v·tanh(W_h h + W_s s) (Bahdanau et al. 2015, appendix A.1.2).

    Args:
        d_hidden: width of the states h that are looked at, of the states s that ask, and of the space they meet in.
    """

    num_heads = 1

    def __init__(self, *, d_hidden: int) -> None:
        super().__init__()
        self.w_h = nn.Linear(d_hidden, d_hidden, bias=False)
        self.w_s = nn.Linear(d_hidden, d_hidden, bias=False)
        self.v = nn.Linear(d_hidden, 1, bias=False)

    def keys_values(self, states: torch.Tensor) -> KeysValues:
        """Project states (B, S, D) to keys W_h h, once for all the steps to come; they are their own values."""
        return self.w_h(states), states

    def forward(
        self, query: torch.Tensor, keys_values: KeysValues, mask: torch.Tensor, *, edit: AttentionEdit | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Let one state a sequence look at the source.

        Args:
            query: (B, D) float, the states s.
            keys_values: what ``keys_values`` returned.
            mask: (B, S) bool, True = may attend.
            edit: what is done to the one head, whose output is the context.

        Returns:
            (B, D) context, the weighted sum of the values, and (B, S) weights, as they were used.
        """
        key, value = keys_values
        scores = self.v((key + self.w_s(query)[:, None]).tanh()).squeeze(-1)  # (B, S)
        weights = masked_softmax(scores, mask)
        if edit is not None:
            weights = edit.forced(weights[:, None, None], mask[:, None, None])[:, 0, 0]  # one head, one query
        context = (weights[:, None] @ value).squeeze(1)
        if edit is not None:
            context = edit.ablated(context[:, None, None])[:, 0, 0]
        return context, weights
