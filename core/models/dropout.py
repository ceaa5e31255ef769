"""Dropout that draws from a generator of its own run."""

import torch
from torch import nn


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
        # Not empty_like: what is drawn for whom would depend on how x lies in memory.
        kept = x.new_empty(x.shape).bernoulli_(1 - self.p, generator=self.generator)
        return x * kept / (1 - self.p)
