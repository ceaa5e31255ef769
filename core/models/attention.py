"""Multi-head attention from tensor operations (Vaswani et al. 2017).

Shape letters, here and in the other modules: B batch, S source, T target, D d_model, H heads, K head_dim, V vocabulary,
L layers; Tq queries and Tk keys. Masks are boolean: True = may attend.
"""

import math

import torch
from torch import nn

from core.config.sections import AttentionScale
from core.models import kernels
from core.models.hooks import HookPoint
from core.models.kernels import Dropout
from core.models.positions import NO_POSITIONS, RelativePositions
from core.models.shape_checks import check_attention, check_states

KeysValues = tuple[torch.Tensor, torch.Tensor]
UNSCALED_LENGTH = 20  # keys; see ``log_length``


def masked_softmax(scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Turn scores (…, Tk) float into weights over the keys that a mask, broadcastable to them, lets through.

    Returns:
        Float of the same shape; each row sums to 1, or is all zeros if the mask hides every key.
    """
    if mask is None:
        return kernels.softmax(scores)
    # The lowest finite number, not -inf: a row without any key would turn into NaN, here and in its gradient.
    return kernels.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min)) * mask


def log_length(key: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return log(n) / log(``UNSCALED_LENGTH``) for the n keys that each query may attend to, (…, Tq or 1, 1) float.

    Scores times the logarithm of the length (Chiang & Cholak 2022; with a learned factor Nakanishi 2025,
    "Scalable-Softmax") keep attention as sharp on long inputs: without it, a key with the same lead in score gets less
    weight among more keys.

    Args:
        key: (B, H, Tk, K) float.
        mask: bool, broadcastable to (B, H, Tq, Tk); True = may attend; None lets all attend to all.
    """
    visible = key.new_ones(1, key.shape[-2]) if mask is None else mask
    return visible.sum(dim=-1, keepdim=True).clamp(min=1).to(key.dtype).log() / math.log(UNSCALED_LENGTH)


class MultiHeadAttention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2), used for self- and cross-attention.

    All heads run as one batched product, in PyTorch's fused kernel if no hook reads the weights.

    Args:
        d_model: width of queries, keys and output.
        num_heads: heads, each of width head_dim = d_model / num_heads.
        dropout: probability of zeroing a weight in training.
        generator: source of the dropout.
        scale: "sqrt", eq. 1 of the paper; or "log-length", that times ``log_length``. ``temperature`` divides both.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        *,
        scale: AttentionScale = "sqrt",
    ) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model={d_model} must be divisible by num_heads={num_heads}")
        self.d_model, self.num_heads, self.head_dim, self.scale = d_model, num_heads, d_model // num_heads, scale
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout, self.temperature = Dropout(dropout, generator), 1.0
        self.hook_q, self.hook_k, self.hook_v, self.hook_mask = (HookPoint() for _ in range(4))
        self.hook_attn_scores, self.hook_bias, self.hook_pattern = (HookPoint() for _ in range(3))
        self.hook_z, self.hook_out = HookPoint(), HookPoint()

    def keys_values(self, x: torch.Tensor, positions: RelativePositions = NO_POSITIONS) -> KeysValues:
        """Project states (B, Tk, D) to keys and values, each (B, H, Tk, K), rotated if ``positions`` has a rotation."""
        check_states("x", x, self.d_model)
        key, value = self._split_heads(self.w_k(x)), self._split_heads(self.w_v(x))
        key = key if positions.rope is None else positions.rope.apply(key)
        value = value if positions.vo_rope is None else positions.vo_rope.apply(value)
        return self.hook_k(key), self.hook_v(value)

    def forward(
        self,
        x: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor | None = None,
        positions: RelativePositions = NO_POSITIONS,
    ) -> torch.Tensor:
        """Let every position of ``x`` attend to keys and values; softmax(Q Kᵀ / √K) V, eq. 1 of the paper.

        Args:
            x: (B, Tq, D) float, the states that the queries are projected from.
            keys_values: what ``keys_values`` returned; fewer than B rows where beams of one source share them.
            mask: bool, broadcastable to (B, H, Tq, Tk); True = may attend; None lets all attend to all.

        Returns:
            (B, Tq, D) float.

        Raises:
            ValueError: a shape does not fit the others.
            TypeError: the mask is not bool.
        """
        check_states("x", x, self.d_model)
        query = self._split_heads(self.w_q(x))  # (B, H, Tq, K)
        check_attention(query, *keys_values, mask)
        query = query if positions.rope is None else positions.rope.apply(query)
        query = query if self.temperature == 1 else query / self.temperature
        query = self.hook_q(query * log_length(keys_values[0], mask) if self.scale == "log-length" else query)
        mask = mask if mask is None else self.hook_mask(mask)
        z = self.attend(query, keys_values, mask, positions.bias)
        z = self.hook_z(z if positions.vo_rope is None else positions.vo_rope.invert(z))
        return self.hook_out(self.w_o(z.transpose(1, 2).flatten(2)))  # (B, Tq, D)

    def attend(
        self,
        query: torch.Tensor,
        keys_values: KeysValues,
        mask: torch.Tensor | None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return each head's weighted sum of the values, (B, H, Tq, K); ``bias`` is added to the scores."""
        key, value = keys_values
        if not self._needs_weights(query):
            return kernels.fused_attention(query, key, value, mask, bias)
        scores = kernels.matmul_shared(query, key.transpose(-2, -1)) / math.sqrt(query.shape[-1])
        scores = self.hook_attn_scores(scores)  # (B, H, Tq, Tk)
        scores = scores if bias is None else scores + self.hook_bias(bias)
        pattern = self.hook_pattern(masked_softmax(scores, mask))
        return kernels.matmul_shared(self.dropout(pattern), value)

    def _needs_weights(self, query: torch.Tensor) -> bool:
        """Whether to compute the weights; for a single query this is also faster."""
        is_read = self.hook_pattern.is_used or self.hook_attn_scores.is_used
        return query.shape[-2] == 1 or self.dropout.is_active or is_read

    def _split_heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, H, T, K)
