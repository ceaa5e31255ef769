"""How a model tells places apart: sines added to the embeddings, a bias on attention, or turns of what it looks at."""

import math
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Rotation:
    """Turns the vectors of heads by angles that grow with the place, each pair of numbers at a speed of its own.

    Values are turned by the angle of their own place, and what a query gathered of them is turned back by that of the
    query's. So a head's output tells how far away each thing is that it saw, and nothing of where both are. RoPE (Su et
    al. 2021) turns queries and keys, and GTA (Miyato et al. 2024) all of them; here they stay as they are.

    Attributes:
        cosine, sine: (B or 1, 1, T, K / 2) float.
    """

    cosine: torch.Tensor
    sine: torch.Tensor

    @classmethod
    def of(cls, places: torch.Tensor, speeds: torch.Tensor) -> "Rotation":
        """Return the turns at places (B or 1, T), of speeds (K / 2,) float in radians a place."""
        angle = places[:, None, :, None] * speeds
        return cls(angle.cos(), angle.sin())

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Turn vectors (B, H, T, K) float."""
        return self._turned(x, self.sine)

    def turned_back(self, x: torch.Tensor) -> torch.Tensor:
        """Undo ``turned``."""
        return self._turned(x, -self.sine)

    def _turned(self, x: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = [first * self.cosine - second * sine, first * sine + second * self.cosine]
        return torch.stack(turned, dim=-1).flatten(-2)


def rotation_speeds(d_k: int) -> torch.Tensor:
    """Return how fast each pair of a head's numbers turns, (K / 2,) float, in radians a place: from 1 to nearly 1 / 10.

    A turn takes 6 to 63 places: with the longer ones of RoPE, much of a circle would only be met in inputs longer than
    those trained on.
    """
    return 10.0 ** (-torch.arange(d_k // 2) / (d_k // 2))
