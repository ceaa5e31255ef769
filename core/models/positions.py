"""Positional encodings: sines added to the embeddings, biases on attention scores, or rotations of head vectors."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from core.config.sections import BlocksConfig

TABLES = "cpu"  # also of a model without data: arithmetic on the meta device imports sympy, which takes a second


def sinusoidal_positions(
    length: int, d_model: int, *, in_halves: bool = False, is_fairseq: bool = False
) -> torch.Tensor:
    """Return the table of sinusoidal encodings, (length, d_model) float32.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle (Vaswani et al. 2017,
    section 3.5). ``in_halves`` puts all sines before all cosines, as Marian does. ``is_fairseq`` does so too, divides
    by d_model - 2 instead, and counts positions from 2.
    """
    position = torch.arange(length, dtype=torch.float64, device=TABLES)[:, None] + 2 * is_fairseq
    pair = torch.arange(0, d_model, 2, dtype=torch.float64, device=TABLES)
    frequency = torch.exp(pair * (-math.log(10_000) / (d_model - 2 * is_fairseq)))
    angle = position * frequency  # (length, d_model / 2)
    waves = [angle.sin(), angle.cos()]
    return (torch.cat(waves, dim=1) if in_halves or is_fairseq else torch.stack(waves, dim=-1).flatten(1)).float()


def alibi_slopes(num_heads: int) -> torch.Tensor:
    """Return the per-head slopes of ALiBi, (H,) float32: 2^(-8h / H) for h = 1 … H (Press et al. 2022)."""
    return 2.0 ** (-8.0 * torch.arange(1, num_heads + 1, device=TABLES) / num_heads)


def alibi_bias(slopes: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return ALiBi's bias on attention scores, (B, H, Tq, Tk) float: minus slope times distance, in both directions.

    ``slopes`` are (H,) float, ``queries`` and ``keys`` (B, Tq) and (B, Tk) position ids.
    """
    distance = (queries[:, None, :, None] - keys[:, None, None, :]).abs()
    return -slopes[:, None, None] * distance


ROPE_BASE = 10_000.0  # Su et al. 2021, section 3.2.2
VO_ROPE_BASE = 10.0  # a turn takes 6 to 63 positions; with lower frequencies, short inputs would use few angles


def rotary_inv_freq(head_dim: int, base: float, period: int = 0) -> torch.Tensor:
    """Return the angle per position of each pair of dimensions, (K / 2,) float32 in radians: base^(-2i / K).

    With a ``period``, positions repeat after it: each pair of dimensions makes whole turns, 2π(i + 1) / period.
    """
    pair = torch.arange(head_dim // 2, device=TABLES)
    return 2 * math.pi / period * (pair + 1) if period else base ** (-pair / (head_dim // 2))


@dataclass(frozen=True)
class Rotation:
    """Rotations of head vectors by angles proportional to their positions, one frequency per pair of dimensions.

    RoPE (Su et al. 2021, eq. 34): queries and keys are rotated, so a score depends on the distance of the two tokens
    and on neither position. VO-RoPE (Su 2025): values are rotated by their own position, and the weighted sum is
    rotated back by the query's, so a head's output depends on distances. GTA (Miyato et al. 2024) does both.

    Attributes:
        cosine, sine: (B or 1, 1, T, K / 2) float.
    """

    cosine: torch.Tensor
    sine: torch.Tensor

    @classmethod
    def at(cls, position_ids: torch.Tensor, inv_freq: torch.Tensor) -> "Rotation":
        """Return the rotations at position ids (B or 1, T), for frequencies (K / 2,) float."""
        angle = position_ids[:, None, :, None] * inv_freq
        return cls(angle.cos(), angle.sin())

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate vectors (B, H, T, K) float."""
        return self._rotate(x, self.sine)

    def invert(self, x: torch.Tensor) -> torch.Tensor:
        """Undo ``apply``."""
        return self._rotate(x, -self.sine)

    def _rotate(self, x: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        rotated = [first * self.cosine - second * sine, first * sine + second * self.cosine]
        return torch.stack(rotated, dim=-1).flatten(-2)


@dataclass(frozen=True)
class RelativePositions:
    """Relative positions for self-attention, in addition to positions added to the embeddings.

    Attributes:
        bias: added to the scores, broadcastable to (B, H, Tq, Tk) float; of "alibi" and "relative-bias".
        rope: rotation of queries and keys; None unless positions are "rope".
        vo_rope: rotation of the values, and back at the queries; None unless positions are "vo-rope".
    """

    bias: torch.Tensor | None = None
    rope: Rotation | None = None
    vo_rope: Rotation | None = None


NO_POSITIONS = RelativePositions()


class RelativeEncoding(nn.Module):
    """Computes the relative positions of a model's ``positions`` setting. It has no parameters."""

    slopes: torch.Tensor | None
    inv_freq: torch.Tensor | None

    def __init__(self, config: BlocksConfig) -> None:
        super().__init__()
        slopes = alibi_slopes(config.num_heads) if config.positions == "alibi" else None
        base = {"rope": ROPE_BASE, "vo-rope": VO_ROPE_BASE}.get(config.positions)
        inv_freq = None if base is None else rotary_inv_freq(config.d_k, base, config.position_period)
        self.rotates_values = config.positions == "vo-rope"
        self.register_buffer("slopes", slopes, persistent=False)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> RelativePositions:
        """Return the relative positions of queries at (B or 1, Tq) and keys at (B or 1, Tk) position ids."""
        if self.slopes is not None:
            return RelativePositions(bias=alibi_bias(self.slopes, queries, keys))
        if self.inv_freq is not None:
            rotation = Rotation.at(queries, self.inv_freq)
            return RelativePositions(vo_rope=rotation) if self.rotates_values else RelativePositions(rope=rotation)
        return NO_POSITIONS
