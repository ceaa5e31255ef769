"""Measures of the health of heads and layers: one formula per function, tensors in, tensors out.

Letters as in ``map_rows.MapRows``: L layers, H heads, N rows, K keys; also D d_model and W the width of a head.
Formulas that the head table shares, such as ``normalized_entropy``, are in ``measures``.
"""

import torch

from core.interpret.measures import TINY

REACH_WEIGHT = 0.1  # keys with less weight do not count for the reach


def entropy(weights: torch.Tensor) -> torch.Tensor:
    """Return the mean entropy of each head's rows in nats, −Σ w ln w, (L, H) float.

    Args:
        weights: (L, H, N, K) float.
    """
    return torch.special.entr(weights).sum(dim=-1).mean(dim=-1)


def attention_distance(weights: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return the mean distance between query and key, weighted by attention, in tokens, (L, H) float.

    Args:
        weights: (L, H, N, K) float.
        offsets: (N, K) int64, position of the key minus position of the query.
    """
    return (weights * offsets.abs()).sum(dim=-1).mean(dim=-1)


def attention_reach(weights: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return the largest distance of a key that any row gives at least ``REACH_WEIGHT``, in tokens, (L, H) float."""
    return ((weights >= REACH_WEIGHT) * offsets.abs()).amax(dim=(-2, -1)).float()


def total_variation(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the mean total-variation distance of two sets of rows, ½ Σ |p − q|, (…): 0 equal, 1 disjoint.

    Args:
        first, second: (…, N, K) float, rows that sum to 1.
    """
    return (first - second).abs().sum(dim=-1).mean(dim=-1) / 2


def head_diversity(weights: torch.Tensor) -> torch.Tensor:
    """Return the mean ``total_variation`` of all pairs of heads of a layer, (L,) float; NaN with one head.

    0 means that all heads of the layer attend alike.

    Args:
        weights: (L, H, N, K) float.
    """
    layers, heads = weights.shape[:2]
    total = weights.new_zeros(layers)
    for first in range(heads - 1):  # one head at a time: all pairs together would not fit into memory
        total += total_variation(weights[:, first : first + 1], weights[:, first + 1 :]).sum(dim=-1)
    return total / (heads * (heads - 1) / 2) if heads > 1 else torch.full_like(total, torch.nan)


def fixed_key_mass(weights: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
    """Return how much of a head's attention is on one key whatever the query, (L, H) float, 0-1.

    For each sequence, the mean weight over its rows on the key with the highest mean; then the mean over all sequences
    with at least two rows, NaN without any. 1 means that in each sequence all rows attend to the same key only.

    Args:
        weights: (L, H, N, K) float.
        sequence: (N,) int64, each row's sequence, from 0.
    """
    counts = sequence.bincount()
    sums = weights.new_zeros(*weights.shape[:2], len(counts), weights.shape[-1])
    sums.index_add_(2, sequence, weights)
    means = sums / counts.clamp(min=1)[:, None]
    return means.amax(dim=-1)[..., counts > 1].mean(dim=-1)


def output_shares(z: torch.Tensor, w_o: torch.Tensor) -> torch.Tensor:
    """Return the size of each head's output compared with the output of its attention layer, (L, H) float.

    A head's output is its part of the layer's sum: its weighted values times its columns of W_o. Both sizes are root
    mean squares over rows; the bias of W_o belongs to no head and is left out. Shares need not add up to 1, because the
    outputs of heads may cancel.

    Args:
        z: (L, N, H, W) float, the heads' weighted values.
        w_o: (L, D, H * W) float, the weight of the output projection.
    """
    by_head = w_o.unflatten(-1, z.shape[2:])  # (L, D, H, W)
    gram = torch.einsum("ldhw,ldhv->lhwv", by_head, by_head)  # ‖W z‖² = z·(Wᵀ W) z, without (N, H, D) numbers
    of_heads = (torch.einsum("lnhw,lhwv->lnhv", z, gram) * z).sum(dim=(1, 3)).clamp(min=0)
    of_layers = (z.flatten(2) @ w_o.transpose(1, 2)).square().sum(dim=(1, 2))
    return (of_heads / of_layers.clamp(min=TINY)[:, None]).sqrt()


def root_mean_square(states: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of all elements, () float."""
    return states.square().mean().sqrt()
