"""How a model tells places apart: sines added to the embeddings, or a bias on attention by distance."""

import math

import torch


def sinusoidal_positions(length: int, d_model: int) -> torch.Tensor:
    """Return the position table (length, d_model) float32: sine at even dimensions, cosine at odd ones.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle (Vaswani et al. 2017,
    section 3.5).
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000) / d_model))
    angle = position * frequency  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


def alibi_slopes(num_heads: int) -> torch.Tensor:
    """Return how much each head minds distance, (H,) float32: 2^(-8h / H) for h = 1 … H (Press et al. 2022)."""
    return 2.0 ** (-8.0 * torch.arange(1, num_heads + 1) / num_heads)


def alibi_bias(slopes: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return ALiBi's bias on attention scores: minus the head's slope times the distance (Press et al. 2022).

    It needs no table, so it is defined at any length. Where both directions are seen, distance counts alike in both.

    Args:
        slopes: (H,) float.
        queries: (B, Tq) int64, the places that ask.
        keys: (B, Tk) int64, the places that are looked at.

    Returns:
        (B, H, Tq, Tk) float.
    """
    distance = (queries[:, None, :, None] - keys[:, None, None, :]).abs()
    return -slopes[:, None, None] * distance
