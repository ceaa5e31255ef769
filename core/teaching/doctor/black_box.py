"""Black-box interface used by the behavioral checks, for runs of the lab and for any other model."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from core.interpret.any_module.attention_calls import AttentionCall
from core.models.seq2seq import Block

NO_ID = -1
"""In place of a special token that a language model does not have; no token has this id."""


class NotCheckableError(Exception):
    """A check cannot be made on this model; the message says why, as a sentence."""


@dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens; sources and targets may have different ids of PAD."""

    src_pad: int
    tgt_pad: int
    bos: int
    eos: int

    def __contains__(self, token: object) -> bool:
        return token in (self.src_pad, self.tgt_pad, self.bos, self.eos)


@dataclass(frozen=True)
class Rounding:
    """The largest change of logits that rounding explains.

    Attributes:
        floor: in standard deviations of the logits.
        share: relative to the change when a token is replaced.
    """

    floor: float
    share: float

    def explains(self, change: float, effect: float = 0.0) -> bool:
        """Whether a change may be rounding, given the change when a token is replaced."""
        return change <= max(self.floor, self.share * effect)


MASKED = 5e3  # by which a masked logit is below the largest one: masks add -1e4 or less, and no training does
ROUNDING = {torch.float64: Rounding(1e-9, 1e-6), torch.float32: Rounding(5e-5, 1e-4)}


class BlackBox(ABC):
    """A sequence-to-sequence model from ids to logits, with a sample of its pairs.

    Attributes:
        special: ids of PAD, BOS and EOS.
        rounding: of the logits.
        reads_target: whether the logits are meant to depend on the decoder input.
        source: what sentences call the source.
    """

    special: SpecialIds
    rounding: Rounding = ROUNDING[torch.float32]
    reads_target: bool = True
    source: str = "source"

    @property
    @abstractmethod
    def few(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A few sources (B, S) int64 and their correct decoder inputs (B, T) int64, shifted right."""

    @property
    @abstractmethod
    def is_real(self) -> torch.Tensor:
        """Where the targets of ``few`` are not PAD, (B, T) bool."""

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
        """Run pairs through the model; return the calls of attention that can be recorded."""

    def read_ids(self) -> dict[Block, torch.Tensor]:
        """Return the ids (B, T) int64 whose keys each attention of ``few`` reads."""
        src, tgt_in = self.few
        return {"encoder": src, "cross": src, "decoder": tgt_in}

    @abstractmethod
    def lacks_positions(self) -> bool | None:
        """Whether every embedding maps a token to the same vector at two positions; None if it cannot be read."""

    def final_state_changes(self, src: torch.Tensor, padded: torch.Tensor) -> bool:
        """Whether PAD changes the final state of a recurrent encoder; False without a readable one."""
        return False


def lengths(ids: torch.Tensor, pad: int) -> torch.Tensor:
    """Return the number of ids of each row (B, T) before the PAD at its end, (B,) int64."""
    positions = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return (positions * (ids != pad)).amax(dim=1)


def is_masked(logits: torch.Tensor) -> torch.Tensor:
    """Return where a model hides a token from its predictions, (B, T, V) bool: as by -inf, or by -1e9."""
    return logits < logits.amax(dim=-1, keepdim=True) - MASKED


def spread(logits: torch.Tensor) -> torch.Tensor:
    """Return the standard deviation of logits (B, T, V) that are finite and not masked."""
    return logits[logits.isfinite() & ~is_masked(logits)].std(correction=0).clamp(min=1e-30)


def largest_change(before: torch.Tensor, after: torch.Tensor, where: torch.Tensor | None = None) -> float:
    """Return the largest absolute change, in standard deviations of ``before``; infinity if one became not finite.

    Tokens that are masked in both do not count, nor values that are infinite in both.

    Args:
        before, after: (B, T, V) float.
        where: the positions to compare, (B, T) bool; None for all.
    """
    everywhere = before
    if where is not None:
        before, after = before[where], after[where]
    if not before.numel():
        return 0.0
    counts = ~(is_masked(before) & is_masked(after))
    before, after = before[counts], after[counts]
    finite = before.isfinite()
    if not finite.any() or not torch.equal(finite, after.isfinite()):
        return float("inf")
    return ((before[finite] - after[finite]).abs().max() / spread(everywhere)).item()


def how_far(change: float) -> str:
    """Return in words how far logits change, see ``largest_change``, as the end of a clause."""
    if not math.isfinite(change):
        return ", some becoming infinite or NaN"
    figure = f"{change:.2g}"
    return f", by {figure} standard deviation{'' if figure == '1' else 's'}"
