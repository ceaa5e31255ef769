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

from core.models.additive_attention import SingleHeadAttention
from core.models.attention import KeysValues, MultiHeadAttention
from core.models.kernels import GrowingRows
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

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
                f"head={short_repr(text)} is not a head: write block.layer.head, such as cross.2.1, numbered from 1; "
                f"blocks are {', '.join(BLOCKS)}"
            )
        return cls(cast(Block, match[1]), int(match[2]), int(match[3]))


@dataclass(frozen=True)
class LayerCache:
    """Keys and values that a decoder layer has computed.

    Attributes:
        source: of the encoder's output, each (B, H, S, K); None without an encoder. In a beam search there is one row
            per source, while ``target`` has one per hypothesis, with those of a source in succession.
        target: of the tokens read so far, each (B, H, P, K); None before the first token.
        room: where keys and values of further tokens are appended; None before the second token and with gradients.
    """

    source: KeysValues | None
    target: KeysValues | None = None
    room: tuple[GrowingRows, GrowingRows] | None = None

    def extended(self, new: KeysValues) -> "LayerCache":
        """Return a cache with the keys and values of T further tokens, each (B, H, T, K), after the present ones."""
        if self.target is None:
            return LayerCache(self.source, new)
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            key, value = (torch.cat(pair, dim=2) for pair in zip(self.target, new, strict=True))
            return LayerCache(self.source, (key, value))
        room = self.room
        if room is None or room[0].length != self.target[0].shape[2]:  # or another cache continues this one
            room = GrowingRows(self.target[0]), GrowingRows(self.target[1])
        return LayerCache(self.source, (room[0].append(new[0]), room[1].append(new[1])), room)

    def select(self, index: torch.Tensor) -> "LayerCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        return LayerCache(_select(self.source, index), _select(self.target, index))

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> "LayerCache":
        """Return the cache in which row i continues row ``index[i]``, index (B,) int64."""
        source = self.source if sources is None else _select(self.source, sources)
        if self.target is None or torch.is_grad_enabled():
            return LayerCache(source, _select(self.target, index))
        room = GrowingRows(self.target[0], index), GrowingRows(self.target[1], index)
        return LayerCache(source, (room[0].rows, room[1].rows), room)


@dataclass(frozen=True)
class KeyValueCache:
    """The caches of all decoder layers.

    Attributes:
        length: number of target tokens read so far.
    """

    layers: tuple[LayerCache, ...]
    length: int = 0

    def select(self, index: torch.Tensor) -> "KeyValueCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        return KeyValueCache(tuple(layer.select(index) for layer in self.layers), self.length)

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> "KeyValueCache":
        """Return the cache in which row i continues row ``index[i]``, index (B,) int64."""
        return KeyValueCache(tuple(layer.reorder(index, sources) for layer in self.layers), self.length)


def _select(pair: KeysValues | None, index: torch.Tensor) -> KeysValues | None:
    if pair is None:
        return None
    key, value = pair
    return key.index_select(0, index), value.index_select(0, index)


@dataclass(frozen=True)
class Memory:
    """The result of ``encode``, an input of ``decode``.

    Attributes:
        states: (B, S, D) float, the encoder's output; in a decoder-only model its states for the source.
        mask: (B, 1, 1, S) bool, True where the source is not PAD.
        final: (L, B, N) float, the last state of each recurrent layer (see ``core.models.gru``); or None.
        past: in a decoder-only model, the cache that contains the source.
        last: (B, 1) int64, in a decoder-only model without BOS the last token of the source; else None.
        stride: (B, 1) float, step between consecutive position ids on both sides, drawn in training with
            ``position_stretch``; None for 1.
    """

    states: torch.Tensor
    mask: torch.Tensor
    final: torch.Tensor | None = None
    past: KeyValueCache | None = None
    last: torch.Tensor | None = None
    stride: torch.Tensor | None = None

    def select(self, index: torch.Tensor) -> "Memory":
        """Return the memory of a batch made of these rows, (N,) int64, in any order and with repetitions."""
        return replace(
            self,
            states=self.states[index],
            mask=self.mask[index],
            final=None if self.final is None else self.final[:, index],
            past=None if self.past is None else self.past.select(index),
            last=None if self.last is None else self.last[index],
            stride=None if self.stride is None else self.stride[index],
        )


class Cache(Protocol):
    """The state that a decoder keeps of the target tokens read so far, for a whole batch."""

    def select(self, index: torch.Tensor) -> Self:
        """Return the cache of a batch made of these rows, (N,) int64, in any order and with repetitions.

        There must be a row for each source, as before the first ``reorder``.
        """

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> Self:
        """Return the cache in which row i continues row ``index[i]``, index (B,) int64, as in a beam search.

        Both rows must belong to the same source, so tensors of the source are shared and neither moved nor copied.

        Args:
            index: of the rows, the same number for each source.
            sources: (R,) int64, the sources that the rows belong to, in their order; None for all sources.
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
        max_seq_len: maximum number of ids of a source and, over all calls, of a decoder input, special tokens included.
        vocab_sizes: tokens of the source and of the target vocabulary, special ones included.
        attention: its attention modules by block and layer, numbered from 1.
        forced_start: ids that ``generate`` makes every output begin with, unless it gets another prefix.
        source_bos, source_eos: whether BOS and EOS of the source may be attended to, see ``source_mask``.
        attention_window: how many tokens away a token may attend to in its own sequence; 0 for all.
    """

    max_seq_len: int
    vocab_sizes: tuple[int, int]
    attention: Mapping[tuple[Block, int], MultiHeadAttention | SingleHeadAttention] = {}
    forced_start: tuple[int, ...] = ()
    source_bos: bool = True
    source_eos: bool = True
    attention_window: int = 0

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

    def source_mask(self, src: torch.Tensor) -> torch.Tensor:
        """Return which tokens of a source (B, S) int64 may be attended to, (B, 1, 1, S) bool; never PAD."""
        mask = src != PAD_ID
        if not self.source_bos:
            mask = mask & (src != BOS_ID)
        if not self.source_eos:
            mask = mask & (src != EOS_ID)
        return mask[:, None, None, :]

    @abstractmethod
    def encode(self, src: torch.Tensor) -> Memory:
        """Read a source (B, S) int64; InputError if the model cannot read its shape, dtype or token ids."""

    @abstractmethod
    def decode(self, tgt_in: torch.Tensor, memory: Memory, cache: Any = None) -> DecoderOutput:
        """Read the next target tokens (B, T) int64 and score the successor of each.

        One call with all tokens (teacher forcing) equals many calls with one token each and the cache passed on.

        Raises:
            InputError: the model cannot read the shape, dtype or token ids, or the target grows longer than
                ``max_seq_len``.
        """

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Score every next token under teacher forcing.

        Args:
            src: (B, S) int64.
            tgt_in: (B, T) int64, BOS first.

        Returns:
            (B, T, V) float logits.

        Raises:
            InputError: the model cannot read the shape, dtype or token ids of an input.
        """
        return self.decode(tgt_in, self.encode(src)).logits

    def check_input_length(self, num_tokens: int) -> None:
        """Raise InputError if an input has too many tokens, BOS and EOS not counted; the message is for its author."""
        positions = num_tokens + 2
        if positions > self.max_seq_len:
            raise InputError(
                f"input has {num_tokens} tokens, {positions} with BOS and EOS; "
                f"this model reads at most {self.max_seq_len}"
            )

    def check_src(self, src: torch.Tensor) -> None:
        """Raise InputError if a source is not (B, S) int64 ids of the source vocabulary, or is too long."""
        self.check_ids("src", src, self.vocab_sizes[0])

    def check_tgt_in(self, tgt_in: torch.Tensor, memory: Memory, past: int = 0) -> None:
        """Raise InputError if decoder input is not (B, T) int64 ids of the target vocabulary, or is too long.

        Args:
            memory: of B sources.
            past: number of target tokens read in earlier calls.
        """
        self.check_ids("tgt_in", tgt_in, self.vocab_sizes[1], past)
        rows, sources = tgt_in.shape[0], memory.mask.shape[0]
        if rows != sources:
            raise InputError(f"tgt_in has {rows} rows; it must have {sources}, one for each row of src")

    def check_ids(self, name: str, ids: torch.Tensor, vocab_size: int, past: int = 0) -> None:
        """Raise InputError if ids, named in the message, are not (B, T) int64 below ``vocab_size``, or are too many."""
        if ids.ndim != 2:
            raise InputError(f"{name} has shape {tuple(ids.shape)}; token ids must be (batch, length)")
        if ids.dtype != torch.int64:
            raise InputError(f"{name} has dtype {ids.dtype}; token ids must be torch.int64")
        length = past + ids.shape[1]
        if length > self.max_seq_len:
            raise InputError(
                f"{name} has {length} tokens, special tokens included, more than max_seq_len={self.max_seq_len}"
            )
        if ids.device.type != "cpu" or torch.compiler.is_compiling() or not ids.numel():
            return  # checking on another device would wait for it; the device reports such ids itself, less clearly
        for extreme in (limit.item() for limit in ids.aminmax()):
            if not 0 <= extreme < vocab_size:
                raise InputError(f"{name} has token id {extreme}; the {vocab_size} ids of its vocabulary start at 0")
