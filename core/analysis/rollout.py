"""Attention rollout: what the encoder's layers might pass on, all together."""

import torch


def rollout(weights: torch.Tensor) -> torch.Tensor:
    """Follow attention through a stack of self-attention layers (Abnar & Zuidema 2020, section 3).

    Each layer is taken as 0.5 A + 0.5 I, where A is the mean of its heads and I stands for the residual connection;
    the result at a layer is its product with all layers below.

    Caution: this is a picture of where tokens could have gone, not a measurement. It takes every head for as important
    as the next and the residual connection for exactly one half, and knows nothing of values, feed-forward networks or
    norms. With every layer it tends to spread more evenly, whatever the model does.

    Args:
        weights: (L, B, H, S, S) float, rows that sum to 1.

    Returns:
        (L, B, S, S) float: how much of each input token is in each state behind each layer; rows sum to 1.
    """
    passed = 0.5 * weights.mean(dim=2) + 0.5 * torch.eye(weights.shape[-1], device=weights.device)
    behind = [passed[0]]
    for layer in passed[1:]:
        behind.append(layer @ behind[-1])
    return torch.stack(behind)
