"""Several models as one: the mean of their probabilities for each token (Sutskever et al. 2014, section 3.6)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from core.models.seq2seq import Cache, DecoderOutput, Memory, Seq2Seq


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memory of each member; states and mask are the first member's."""

    members: tuple[Memory, ...] = ()

    def select(self, index: torch.Tensor) -> "EnsembleMemory":
        """Return the memory of a batch made of these rows, (N,) int64."""
        members = tuple(member.select(index) for member in self.members)
        return replace(self, states=members[0].states, mask=members[0].mask, members=members)


@dataclass(frozen=True)
class EnsembleCache:
    """The cache of each member."""

    members: tuple[Cache, ...]

    def select(self, index: torch.Tensor) -> "EnsembleCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        return EnsembleCache(tuple(member.select(index) for member in self.members))

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> "EnsembleCache":
        """Return the cache in which row i continues row ``index[i]``, index (B,) int64."""
        return EnsembleCache(tuple(member.reorder(index, sources) for member in self.members))


class Ensemble(Seq2Seq):
    """Models with the same vocabularies that decode together. Its logits are log-probabilities.

    It has no attention of its own; see that of its members.

    Args:
        members: at least one; of several families and sizes if desired.

    Raises:
        ValueError: their vocabularies have different sizes.
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        sizes = {member.vocab_sizes for member in members}
        if len(sizes) != 1:
            raise ValueError(f"vocab_sizes={sorted(sizes)} of the members must be equal")
        self.members = nn.ModuleList(members)
        self.vocab_sizes = sizes.pop()
        self.max_seq_len = min(member.max_seq_len for member in members)

    def encode(self, src: torch.Tensor) -> EnsembleMemory:
        """Read a source with every member; see ``Seq2Seq.encode``."""
        self.check_src(src)
        members = tuple(cast(Seq2Seq, member).encode(src) for member in self.members)
        return EnsembleMemory(members[0].states, members[0].mask, members=members)

    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: Any = None) -> DecoderOutput:
        """Read the next target tokens with every member; see ``Seq2Seq.decode``."""
        memories = cast(EnsembleMemory, memory).members
        caches = [None] * len(memories) if cache is None else cache.members
        outputs = [
            cast(Seq2Seq, member).decode(tgt_in, *of_member)
            for member, of_member in zip(self.members, zip(memories, caches, strict=True), strict=True)
        ]
        log_probs = torch.stack([output.logits.float().log_softmax(dim=-1) for output in outputs])
        mean = log_probs.logsumexp(dim=0) - math.log(len(outputs))
        return DecoderOutput(mean, EnsembleCache(tuple(output.cache for output in outputs)))
