"""Black-box interface used by the behavioral checks, for runs of the lab and for any other model."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from core.teaching.doctor.attention_calls import AttentionCall, mass_on_later, mass_on_source_end

CHANGED = 1e-3  # standard deviations of the logits; rounding changes them by a thousandth of that


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens, the same in sources and targets."""

    pad: int
    bos: int
    eos: int

    def __contains__(self, token: object) -> bool:
        return token in (self.pad, self.bos, self.eos)


class BlackBox(ABC):
    """A sequence-to-sequence model from ids to logits, with a sample of its pairs.

    Attributes:
        special: ids of PAD, BOS and EOS.
        tolerance: the largest change of a logit due to rounding, in standard deviations of the logits.
    """

    special: SpecialIds
    tolerance: float = CHANGED

    @property
    @abstractmethod
    def few(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A few sources (B, S) int64 and their correct decoder inputs (B, T) int64, shifted right."""

    @abstractmethod
    def shortest(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the shortest source (1, S) int64, without PAD, and its correct decoder input (1, T) int64."""

    @abstractmethod
    def room_after(self, length: int) -> int:
        """Return how many tokens can be appended to a source of that length; 0 or less for none."""

    @abstractmethod
    def logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V) float under teacher forcing, in evaluation mode and without gradients."""

    @abstractmethod
    def attention_calls(self, src: torch.Tensor, tgt_in: torch.Tensor) -> list[AttentionCall]:
        """Run pairs through the model; return the calls of the attention modules that can be recorded."""

    @abstractmethod
    def lacks_positions(self) -> bool:
        """Whether the model has no positional information, given that swapping source tokens changes no logit."""

    def final_state_changes(self, src: torch.Tensor, padded: torch.Tensor) -> bool:
        """Whether PAD changes the final state of a recurrent encoder; False without a readable one."""
        return False

    def attention_to_later(self) -> float | None:
        """Return the fraction of the decoder's self-attention on later tokens; None if it cannot be read."""
        return mass_on_later(self.attention_calls(*self.few))

    def attention_to_end(self, src: torch.Tensor, tgt_in: torch.Tensor, num_last: int) -> float | None:
        """Return the fraction of attention on the last tokens of a source; None if it cannot be read."""
        return mass_on_source_end(self.attention_calls(src, tgt_in), src.shape[1], num_last)


def lengths(ids: torch.Tensor, pad: int) -> torch.Tensor:
    """Return the number of ids of each row (B, T) before the PAD at its end, (B,) int64."""
    positions = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return (positions * (ids != pad)).amax(dim=1)


def largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the largest absolute change, in standard deviations of ``before``; infinity if one became not finite.

    Values that are infinite in both do not count: a model may set the logits of PAD to -inf.
    """
    if not before.numel():
        return 0.0
    finite = before.isfinite()
    if not finite.any() or not torch.equal(finite, after.isfinite()):
        return float("inf")
    before, after = before[finite], after[finite]
    return ((before - after).abs().max() / before.std().clamp(min=1e-12)).item()
