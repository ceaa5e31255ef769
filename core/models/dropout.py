"""Dropout that draws from its run's own generator."""

import torch
from torch import nn

from core.models.kernels import keep_mask


class Dropout(nn.Module):
    """Zero a fraction ``p`` of the activations in training and scale up the rest (Srivastava et al. 2014).

    ``nn.Dropout`` draws from one generator for the whole process, so runs that train side by side would change each
    other's results.
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
        """Apply dropout to a float tensor of any shape."""
        if not self.is_active:
            return x
        return x * keep_mask(x, self.p, self.generator).to(x.dtype).div_(1 - self.p)
