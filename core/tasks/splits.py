"""Train, validation or test: decided for each sequence by a stable hash of its tokens.

No list of held-out sequences has to be kept: the same tokens fall into the same split on every machine,
in every run, so training can draw fresh sequences for ever and never meet one it is tested on.
"""

from typing import Literal

import torch

Split = Literal["train", "validation", "test"]

SHARES: dict[Split, float] = {"test": 0.1, "validation": 0.1, "train": 0.8}
_PRIME = 2**31 - 1
_MULTIPLIER = 48_271  # a primitive root modulo the prime: powers of it look random (Park & Miller 1988)


def split_mask(tokens: torch.Tensor, split: Split) -> torch.Tensor:
    """Tell which sequences belong to a split.

    Args:
        tokens: (B, T) int64 ids; PAD is 0 and changes nothing, wherever it pads on the right.

    Returns:
        (B,) bool.
    """
    bucket = _hash(tokens) % 100
    if split == "test":
        return bucket < 10
    if split == "validation":
        return (bucket >= 10) & (bucket < 20)
    return bucket >= 20


def _hash(tokens: torch.Tensor) -> torch.Tensor:
    """Hash rows (B, T) int64 to (B,) int64 below 2**31 in exact integer arithmetic."""
    powers = [pow(_MULTIPLIER, place + 1, _PRIME) for place in range(tokens.shape[1])]
    value = (tokens * torch.tensor(powers, device=tokens.device)).sum(dim=1) % _PRIME
    # The sum is linear in the tokens; two multiply-and-shift rounds (as MurmurHash ends) break that.
    for multiplier, shift in ((0x2C1B3C6D, 12), (0x297A2D39, 15)):
        value = value ^ (value >> shift)
        value = (value * multiplier) & 0x7FFFFFFF
    return value ^ (value >> 15)
