"""Dropout that draws from a generator of its own run."""

import torch
from torch import nn

_CHANCES = 2**16  # a share dropped is rounded to one of so many


class Dropout(nn.Module):
    """Zero a share of the activations in training and scale up the rest (Srivastava et al. 2014).

    PyTorch's own dropout draws from one generator for the whole process, so two runs that train side by side
    would change each other's results. This one draws from the generator it is given.
    """

    def __init__(self, p: float, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout={p} must be at least 0 and below 1")
        self.p = p
        self.generator = generator

    @property
    def is_active(self) -> bool:
        """Whether the next call changes its input."""
        return self.training and self.p > 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` of any shape, with a share ``p`` zeroed when training."""
        if not self.is_active:
            return x
        return x * _kept(x, self.p, self.generator).to(x.dtype).div_(1 - self.p)


def _kept(x: torch.Tensor, p: float, generator: torch.Generator | None) -> torch.Tensor:
    """Draw what stays of ``x``, in the order of the numbers, however they lie in memory; bool or float of its shape.

    On a CPU four draws are made of each 64 random bits, which takes a fifth of the time of a draw each.
    """
    if x.device.type != "cpu":
        return x.new_empty(x.shape).bernoulli_(1 - p, generator=generator)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return (bits.view(torch.int16)[: x.numel()] >= round(p * _CHANCES) - _CHANCES // 2).view(x.shape)
