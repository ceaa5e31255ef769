"""Linear attention (Katharopoulos et al. 2020): its cost grows linearly with the length of a sequence."""

import torch
import torch.nn.functional as F

from core.models.attention import MultiHeadAttention

EPSILON = 1e-6  # smallest divisor: a query without visible keys gets zeros, not NaN


class LinearAttention(MultiHeadAttention):
    """Multi-head self-attention with weights φ(q)·φ(k) / Σ φ(q)·φ(k), where φ(x) = elu(x) + 1.

    The similarity is a product instead of exp(q·k / √K), so the sum over the keys can be computed first: Σ φ(k) vᵀ is
    computed once for all queries (eq. 5) or, in a causal decoder, as a running sum (eq. 9). No matrix of queries by
    keys is needed. It is computed only for hooks that read the weights, and for a single query.

    A decoder's cache contains keys and values, not only the running sum, so the weights of a step can be shown. There
    is no dropout on the weights.
    """

    def __init__(
        self, d_model: int, num_heads: int, dropout: float = 0.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(d_model, num_heads)

    def attend(
        self,
        query: torch.Tensor,
        keys_values: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return each head's weighted sum of the values, (B, H, Tq, K).

        Args:
            mask: bool, True = may attend: of keys, (B, 1, 1, Tk), or causal, (Tq, Tk); None lets all attend to all.
            bias: must be None, since the sum over the keys cannot depend on distances.
        """
        key, value = keys_values
        query, key = F.elu(query) + 1, F.elu(key) + 1
        if self._needs_weights(query) or self.hook_mask.is_used:
            scores = self.hook_attn_scores(query @ key.transpose(-2, -1))  # (B, H, Tq, Tk)
            scores = scores if mask is None else scores * mask
            return self.hook_pattern(scores / scores.sum(dim=-1, keepdim=True).clamp(min=EPSILON)) @ value
        if mask is not None and mask.shape[-2] > 1:
            return _causal(query, key, value)
        key = key if mask is None else key * mask.transpose(-2, -1)
        return _divided(query, key.transpose(-2, -1) @ value, key.sum(dim=-2)[..., None])


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Let the last positions, one per query, attend to all positions up to their own."""
    past = key.shape[-2] - query.shape[-2]
    products = (key[..., None] * value[..., None, :]).cumsum(dim=2)[:, :, past:]  # (B, H, Tq, K, K): Σ φ(k) vᵀ so far
    sums = key.cumsum(dim=2)[:, :, past:, :, None]
    return _divided(query[..., None, :], products, sums)[..., 0, :]


def _divided(query: torch.Tensor, products: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Return φ(q)ᵀ Σ φ(k) vᵀ / φ(q)ᵀ Σ φ(k)."""
    return (query @ products) / (query @ sums).clamp(min=EPSILON)
