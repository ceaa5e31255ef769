"""A model whose encoder's attention has another shape than (S, S), as that of windows or of tokens that see all."""

import torch.nn.functional as F

from benchmarks.model_styles import Attention, FromScratch


class WindowedAttention(Attention):
    """Attention with three more keys, which the mask hides."""

    def forward(self, x, memory, mask):
        """Return (B, S, D)."""
        return super().forward(x, F.pad(memory, (0, 0, 0, 3)), F.pad(mask, (0, 3)))


class Windowed(FromScratch):
    """A correct model of one layer each."""

    def __init__(self) -> None:
        super().__init__("matmul")
        self.encoder = WindowedAttention("matmul")
