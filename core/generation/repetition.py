"""The repetition penalty: what was written already becomes less likely."""

import torch


class RepetitionPenalty:
    """Lowers the logits of written tokens: positive ones are divided by the penalty, negative ones multiplied.

    That is Keskar et al. 2019 (CTRL), section 4.1, in the form that lowers negative logits too. Forced tokens count as
    written, BOS does not.

    Args:
        penalty: 1 changes nothing, and costs nothing.
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty
        self._written: torch.Tensor | None = None  # (N, V) bool

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits (N, V) float with those of written tokens lowered."""
        if self.penalty == 1:
            return logits
        if self._written is None:
            self._written = torch.zeros_like(logits, dtype=torch.bool)
        lowered = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(self._written, lowered, logits)

    def note(self, tokens: torch.Tensor, rows: torch.Tensor | None = None) -> None:
        """Remember the tokens (N, 1) int64 just written.

        Args:
            rows: (N,) int64, which of the sequences so far each of them continues; None: each its own.
        """
        if self.penalty > 1:
            written = self._written if rows is None else self._written[rows]
            self._written = written.scatter(1, tokens, True)
