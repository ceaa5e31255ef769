"""The interface that every model here has: encode a source once, then decode a target in steps or at once."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import nn

from core.models.attention import AttentionMaps
from core.models.heads import NO_INTERVENTIONS, Head, Interventions


@dataclass(frozen=True)
class Memory:
    """What the encoder made of a source.

    Attributes:
        states: (B, S, D) float.
        mask: (B, 1, 1, S) bool, True where the source is not PAD.
        weights: (L, B, H, S, S) float, the encoder's attention, or None.
        final: (L, B, D) float, where each recurrent layer ended, or None.
        past: what a decoder that read the source itself goes on from, or None.
        interventions: what was done to the heads that read the source, and is to be done to those that write.
        stride: how far apart the places of neighbouring tokens are, (B, 1) float; None for 1.
    """

    states: torch.Tensor
    mask: torch.Tensor
    weights: torch.Tensor | None = None
    final: torch.Tensor | None = None
    past: "Cache | None" = None
    interventions: Interventions = NO_INTERVENTIONS
    stride: torch.Tensor | None = None

    def rows(self, index: torch.Tensor) -> "Memory":
        """Return the memory of a batch made of these rows, (N,) int64: in another order, some left out, some twice."""
        weights, final = (None if each is None else each[:, index] for each in (self.weights, self.final))
        past = None if self.past is None else self.past.rows(index)
        stride = None if self.stride is None else self.stride[index]
        return Memory(self.states[index], self.mask[index], weights, final, past, self.interventions, stride)


class Cache(Protocol):
    """What a decoder keeps of the target tokens it has read, for a whole batch."""

    def rows(self, index: torch.Tensor) -> Self:
        """Return the cache of a batch made of these rows, (N,) int64; see ``Memory.rows``."""

    def reordered(self, index: torch.Tensor) -> Self:
        """Return the cache of rows that go on from rows ``index`` (N,) int64: each source's as many, where it stood.

        The same as ``rows``, but cheaper: what belongs to a source need be neither moved nor copied.
        """


@dataclass(frozen=True)
class DecoderOutput:
    """What the decoder made of some target tokens.

    Attributes:
        logits: (B, T, V) float, scores of each token's successor.
        cache: hand it to the next call, which then continues behind these tokens.
        decoder_weights: (L, B, H, T, past + T) float, or None; a decoder that read the source itself looks back
            further, at (L, B, H, T, S + past + T).
        cross_weights: (L, B, H, T, S) float, or None.
    """

    logits: torch.Tensor
    cache: Cache
    decoder_weights: torch.Tensor | None = None
    cross_weights: torch.Tensor | None = None


class Seq2Seq(nn.Module, ABC):
    """A model from source ids to target logits. PAD in the source changes nothing.

    Attributes:
        heads: all its attention heads, by block, layer and number.
    """

    max_seq_len: int
    heads: tuple[Head, ...] = ()

    @property
    def device(self) -> torch.device:
        """Where its weights are and its input must be."""
        return next(iter(self.parameters()), torch.empty(0)).device

    @abstractmethod
    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        """Read a source (B, S) int64.

        Args:
            interventions: what is done to heads, now and in whatever is decoded from this memory.

        Raises:
            ValueError: the source is longer than the model can read.
            InputError: the model lacks a head that something is to be done to.
        """

    @abstractmethod
    def decode(
        self, tgt_in: torch.Tensor, memory: Memory, cache: Cache | None = None, *, need_weights: bool = False
    ) -> DecoderOutput:
        """Read the next target tokens (B, T) int64 and score what follows each of them.

        One call with all tokens (teacher forcing) equals many calls with one token each and the cache handed on.

        Raises:
            ValueError: the target grew longer than the model can write.
        """

    def forward(
        self,
        src: torch.Tensor,
        tgt_in: torch.Tensor,
        *,
        need_weights: bool = False,
        interventions: Interventions = NO_INTERVENTIONS,
    ) -> tuple[torch.Tensor, AttentionMaps | None]:
        """Score every next token under teacher forcing.

        Args:
            src: (B, S) int64.
            tgt_in: (B, T) int64, BOS first.
            need_weights: also return the attention maps.
            interventions: what is done to heads meanwhile.

        Returns:
            (B, T, V) logits, and the maps of all layers and heads or None.
        """
        memory = self.encode(src, need_weights=need_weights, interventions=interventions)
        decoding = self.decode(tgt_in, memory, need_weights=need_weights)
        maps = AttentionMaps(memory.weights, decoding.decoder_weights, decoding.cross_weights)
        return decoding.logits, maps if need_weights else None
