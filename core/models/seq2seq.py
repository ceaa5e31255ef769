"""The interface of every model: encode a source once, then decode a target in one call or step by step.

Shapes: B rows of a batch, S source tokens, T new target tokens, P target tokens in the cache, D width of the states,
H heads, K width of a head, V vocabulary, L layers.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, cast, get_args

import torch
from torch import nn

from core.models.attention import AdditiveAttention, KeysValues, MultiHeadAttention
from core.storage.errors import InputError

# The kinds of attention: the encoder's self-attention, the decoder's self-attention, and cross-attention.
Block = Literal["encoder", "decoder", "cross"]
BLOCKS: tuple[Block, ...] = get_args(Block)


@dataclass(frozen=True)
class Head:
    """One attention head, as text ``cross.2.1``.

    Layer and head are numbered from 1; layer n is ``…_layers.{n-1}`` in the paths of modules and hook points.
    """

    block: Block
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.block}.{self.layer}.{self.head}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Read the name of a head; InputError if it is not one."""
        match = re.fullmatch(rf"({'|'.join(BLOCKS)})\.([1-9][0-9]{{0,3}})\.([1-9][0-9]{{0,3}})", text.strip())
        if not match:
            raise InputError(
                f"head={text!r:.60} is not a head: write block.layer.head, such as cross.2.1, numbered from 1; "
                f"blocks are {', '.join(BLOCKS)}"
            )
        return cls(cast(Block, match[1]), int(match[2]), int(match[3]))


@dataclass(frozen=True)
class LayerCache:
    """Keys and values that a decoder layer has computed.

    Attributes:
        source: of the encoder's output, each (B, H, S, K); in a beam search a row for each source, while ``target`` has
            one for each hypothesis, those of a source one after the other. None without encoder.
        target: of the tokens read so far, each (B, H, P, K); None before the first.
    """

    source: KeysValues | None
    target: KeysValues | None = None

    def extended(self, new: KeysValues) -> "LayerCache":
        """Return a cache with the keys and values of T further tokens, each (B, H, T, K), after the present ones."""
        if self.target is None:
            return LayerCache(self.source, new)
        key, value = (torch.cat(pair, dim=2) for pair in zip(self.target, new, strict=True))
        return LayerCache(self.source, (key, value))

    def select(self, index: torch.Tensor) -> "LayerCache":
        """See ``Cache.select``."""
        return LayerCache(_select(self.source, index), _select(self.target, index))

    def reorder(self, index: torch.Tensor) -> "LayerCache":
        """See ``Cache.reorder``."""
        return LayerCache(self.source, _select(self.target, index))


@dataclass(frozen=True)
class KeyValueCache:
    """The caches of all decoder layers.

    Attributes:
        length: number of target tokens read so far.
    """

    layers: tuple[LayerCache, ...]
    length: int = 0

    def select(self, index: torch.Tensor) -> "KeyValueCache":
        """See ``Cache.select``."""
        return KeyValueCache(tuple(layer.select(index) for layer in self.layers), self.length)

    def reorder(self, index: torch.Tensor) -> "KeyValueCache":
        """See ``Cache.reorder``."""
        return KeyValueCache(tuple(layer.reorder(index) for layer in self.layers), self.length)


def _select(pair: KeysValues | None, index: torch.Tensor) -> KeysValues | None:
    if pair is None:
        return None
    key, value = pair
    return key.index_select(0, index), value.index_select(0, index)


@dataclass(frozen=True)
class Memory:
    """What ``encode`` hands to ``decode``.

    Attributes:
        states: (B, S, D) float, the encoder's output or, of a decoder-only model, its states for the source.
        mask: (B, 1, 1, S) bool, True where the source is not PAD.
        final: (L, B, D) float, the last state of each recurrent layer, or None.
        past: of a decoder-only model, the cache with the source in it.
        stride: (B, 1) float, step between consecutive position ids on both sides, drawn in training with
            ``position_stretch``; None for 1.
    """

    states: torch.Tensor
    mask: torch.Tensor
    final: torch.Tensor | None = None
    past: KeyValueCache | None = None
    stride: torch.Tensor | None = None

    def select(self, index: torch.Tensor) -> "Memory":
        """Return the memory of a batch made of these rows, (N,) int64, in any order and as often as they occur."""
        return replace(
            self,
            states=self.states[index],
            mask=self.mask[index],
            final=None if self.final is None else self.final[:, index],
            past=None if self.past is None else self.past.select(index),
            stride=None if self.stride is None else self.stride[index],
        )


class Cache(Protocol):
    """What a decoder keeps of the target tokens it has read, for a whole batch."""

    def select(self, index: torch.Tensor) -> Self:
        """Return the cache of a batch made of these rows, (N,) int64, in any order and as often as they occur.

        There must be a row for each source, as before the first ``reorder``.
        """

    def reorder(self, index: torch.Tensor) -> Self:
        """Return the cache in which row i continues row ``index[i]``, index (B,) int64, as in a beam search.

        Both rows must belong to the same source, so what belongs to a source is shared, neither moved nor copied.
        """


@dataclass(frozen=True)
class DecoderOutput:
    """The decoder's output for some target tokens.

    Attributes:
        logits: (B, T, V) float, scores of the token that follows each input token.
        cache: pass it to the next call, which then continues after these tokens.
    """

    logits: torch.Tensor
    cache: Any  # each model has its own class of ``Cache``


class Seq2Seq(nn.Module, ABC):
    """A model from source ids to target logits. Padding the source with PAD does not change the logits.

    Attributes:
        max_seq_len: most ids of a source and, over all calls, of a decoder input; special tokens count.
        attention: its attention modules by block and layer, numbered from 1.
    """

    max_seq_len: int
    attention: Mapping[tuple[Block, int], MultiHeadAttention | AdditiveAttention] = {}

    @property
    def heads(self) -> tuple[Head, ...]:
        """All attention heads, in the order of ``attention``, then by number."""
        return tuple(
            Head(block, layer, head)
            for (block, layer), module in self.attention.items()
            for head in range(1, module.num_heads + 1)
        )

    @property
    def device(self) -> torch.device:
        """Device of the parameters; inputs must be on it."""
        return next(iter(self.parameters()), torch.empty(0)).device

    @abstractmethod
    def encode(self, src: torch.Tensor) -> Memory:
        """Read a source (B, S) int64; ValueError if it is longer than ``max_seq_len``."""

    @abstractmethod
    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: Any = None) -> DecoderOutput:
        """Read the next target tokens (B, T) int64 and score the successor of each.

        One call with all tokens (teacher forcing) equals many calls with one token each and the cache passed on.

        Raises:
            ValueError: the target grows longer than ``max_seq_len``.
        """

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Score every next token under teacher forcing.

        Args:
            src: (B, S) int64.
            tgt_in: (B, T) int64, BOS first.

        Returns:
            (B, T, V) float logits.
        """
        return self.decode(tgt_in, self.encode(src)).logits

    def check_length(self, length: int) -> None:
        """Raise ValueError if a sequence of that many tokens is too long for the model."""
        if length > self.max_seq_len:
            raise ValueError(f"{length} tokens, special tokens included, are more than max_seq_len={self.max_seq_len}")
