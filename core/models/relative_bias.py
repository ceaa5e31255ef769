"""The relative position bias of T5 (Raffel et al. 2020, section 2.1): trained, by head and bucket of distances."""

import math

import torch
from torch import nn

from core.config.sections import BlocksConfig
from core.models.positions import RelativeEncoding, RelativePositions

NUM_BUCKETS, MAX_DISTANCE = 32, 128  # as in all published models of T5


def distance_buckets(distance: torch.Tensor, *, is_causal: bool) -> torch.Tensor:
    """Return the bucket of each distance from query to key, int64 of the same shape.

    Half of the buckets are for one distance each, the others for ranges that grow logarithmically up to
    ``MAX_DISTANCE``. A causal stack has no keys after a query; otherwise half of all buckets are for those.
    """
    buckets, offset = NUM_BUCKETS, torch.zeros_like(distance)
    if is_causal:
        distance = (-distance).clamp(min=0)
    else:
        buckets //= 2
        distance, offset = distance.abs(), (distance > 0) * buckets
    exact = buckets // 2
    growth = (distance.clamp(min=1).float() / exact).log() / math.log(MAX_DISTANCE / exact)
    far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < exact, distance, far)


class RelativeBias(nn.Module):
    """Adds a trained number to the attention scores, by head and distance; all layers of a stack share it."""

    def __init__(self, num_heads: int, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.weight = nn.Parameter(torch.zeros(NUM_BUCKETS, num_heads))

    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> RelativePositions:
        """Return the relative positions of queries at (B or 1, Tq) and keys at (B or 1, Tk) position ids, int64."""
        buckets = distance_buckets(keys[:, None, :] - queries[:, :, None], is_causal=self.is_causal)
        return RelativePositions(bias=self.weight[buckets].permute(0, 3, 1, 2))  # (B or 1, H, Tq, Tk)


def build_relative(config: BlocksConfig, *, is_causal: bool) -> nn.Module:
    """Return what computes the relative positions of a stack; ``is_causal`` if no token attends to later ones."""
    is_biased = config.positions == "relative-bias"
    return RelativeBias(config.num_heads, is_causal=is_causal) if is_biased else RelativeEncoding(config)
