"""Milestone 1, as a file to check: ``python -m core milestones 1 --module docs/examples/my_attention.py``."""

import math

import torch


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(Q Kᵀ / √d_k) V and the weights; True in the mask = hidden."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


def create_causal_mask(size: int) -> torch.Tensor:
    """Return (size, size) bool, True where a later token is hidden."""
    return torch.ones(size, size, dtype=torch.bool).triu(1)


def create_padding_mask(sequence: torch.Tensor, pad_token_id: int = 0) -> torch.Tensor:
    """Return (B, 1, 1, S) bool, True where PAD is hidden."""
    return (sequence == pad_token_id)[:, None, None]
