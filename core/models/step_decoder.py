"""Decode one token per call, as ``Transformer.decode`` does, with fewer and larger operations.

``Transformer.decode`` reads like figure 1 of the paper and is the definition. ``StepDecoder`` computes the same logits,
up to rounding, where no hook could see a difference. It projects queries, keys and values in one product, with weights
joined for each generation, and arranges keys and values so that they are never copied: ``ColumnCache`` for one row per
source, ``SlotCache`` for beams. Each generation has its own caches, so threads may share the model, and weights may
change between generations.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, cast

import torch
import torch.nn.functional as F
from torch import nn

from core.config.sections import RELATIVE_POSITIONS
from core.models import kernels
from core.models.attention import MultiHeadAttention
from core.models.embeddings import Output
from core.models.hooks import has_permanent_hooks, hooks_are_active
from core.models.layers import DecoderLayer, FeedForward
from core.models.seq2seq import DecoderOutput, Memory, Seq2Seq
from core.models.step_weights import LayerWeights, MakeLinearMap, StepWeights, norm_function
from core.models.transformer import Transformer

_ROOM = 8  # steps by which the room for keys and values grows; larger gaps between rows make reading slower
_COLUMNS_HEAD_DIM = 32  # head width below which ``ColumnCache`` is faster than ``SlotCache``


def step_decoder(model: Seq2Seq, memory: Memory, rows_per_source: int) -> "StepDecoder | None":
    """Return a decoder of single tokens, or None if the model itself must decode.

    The model itself must decode while hooks are active, with gradients, in training mode, on devices other than a CPU,
    in precisions other than float32, and if it is not a Transformer with multi-head attention, the paper's scale and no
    relative positions.

    Args:
        memory: what the model's ``encode`` returned.
        rows_per_source: maximum number of rows of the batch per source: the beam size.
    """
    if model.training or hooks_are_active() or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return None
    states = memory.states
    if states.device.type != "cpu" or states.dtype != torch.float32 or not memory.mask.any(dim=-1).all():
        return None
    if not has_step_decoder(model):
        return None
    return StepDecoder(model, use_columns=rows_per_source == 1 and model.config.d_k < _COLUMNS_HEAD_DIM)


def has_step_decoder(model: Seq2Seq) -> TypeGuard[Transformer]:
    """Whether ``StepDecoder`` computes what a model of this kind does, whatever it reads."""
    if type(model) is not Transformer:
        return False
    config = model.config
    if config.activation not in ("relu", "gelu") or config.attention_scale != "sqrt":
        return False
    if config.feed_forward_block == "gated" or config.positions in RELATIVE_POSITIONS or config.attention != "full":
        return False
    return all(_is_plain(module, kind) for module, kind in _replaced_modules(model))


def joined_weights(model: Transformer, linear: MakeLinearMap) -> StepWeights:
    """Return the weights of a model's decoder for ``StepDecoder``, as linear maps of a given kind."""
    return StepWeights.of(model.decoder_layers, model.config.activation, model.output, model.tgt_embedding, linear)


def _replaced_modules(model: Transformer) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
    """Yield the modules that ``StepDecoder`` replaces, and the class that each must have."""
    yield model.output, Output
    for layer in (cast(DecoderLayer, each) for each in model.decoder_layers):
        yield layer, DecoderLayer
        blocks: tuple[tuple[nn.Module | None, type[nn.Module]], ...] = (
            (layer.feed_forward, FeedForward),
            (layer.self_attention, MultiHeadAttention),
            (layer.cross_attention, MultiHeadAttention),
        )
        for block, kind in blocks:
            if block is not None:
                yield block, kind
                yield from ((each, nn.Linear) for each in block.children() if not isinstance(each, kernels.Dropout))


def _is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module has exactly this class and no hook, of this project or of PyTorch."""
    if type(module) is not kind or module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return False
    return kind is nn.Linear or not has_permanent_hooks(module)


class StepDecoder:
    """Decodes single tokens with a ``Transformer``; make one for each generation.

    Args:
        use_columns: keep keys and values in a ``ColumnCache``, for one row per source; otherwise in a ``SlotCache``.
    """

    def __init__(self, model: Transformer, *, use_columns: bool) -> None:
        self.model, self._is_pre_norm = model, model.config.norm == "pre"
        self._weights = model.step_weights or joined_weights(model, kernels.PackedLinear)
        self._norm = norm_function(model.decoder_norm)
        self._cache_class = ColumnCache if use_columns else SlotCache

    @torch.inference_mode()
    def decode(self, tokens: torch.Tensor, memory: Memory, cache: Any = None) -> DecoderOutput:
        """Read the next target token of each row, (B, 1) int64 below the vocabulary size; see ``Seq2Seq.decode``.

        The cache is extended in place.
        """
        model = self.model
        layers = self._weights.layers
        cache = self._cache_class.of_source(memory, layers) if cache is None else cache
        if cache.length == model.max_seq_len:
            model.check_tgt_in(tokens, memory, cache.length)  # raises InputError
        x = model.tgt_embedding(tokens, cache.length)[:, 0]  # (B, D)
        cache.add_token()
        for number, layer in enumerate(layers):
            if self._is_pre_norm:
                x = x + cache.attend_target(number, layer.norm_self(x))
                x += cache.attend_source(number, layer.norm_cross(x))
                x += layer.narrow(layer.widen(layer.norm_feed_forward(x)))
            else:
                x = layer.norm_self(cache.attend_target(number, x).add_(x))
                x = layer.norm_cross(cache.attend_source(number, x).add_(x))
                x = layer.norm_feed_forward(layer.narrow(layer.widen(x)).add_(x))
        return DecoderOutput(self._weights.score(self._norm(x))[:, None], cache)


@dataclass
class ColumnCache:
    """Keys and values with the rows of the batch in the last dimension, for one row per source.

    Attention with one query per row then consists of sums over whole columns. PyTorch would multiply the small matrices
    of each row and head one by one. The projections can write their outputs transposed at no cost.

    Attributes:
        source: (S, 2 D, B) float for each layer: keys, then values.
        hidden: (S, 1, B) float, -inf at PAD, else 0; None without PAD.
        target: (room, 3 D, B) float for each layer: queries, keys, values of each step.
        length: number of target tokens read so far.
    """

    layers: list[LayerWeights]
    source: list[torch.Tensor]
    hidden: torch.Tensor | None
    target: list[torch.Tensor]
    length: int = 0

    @classmethod
    def of_source(cls, memory: Memory, layers: list[LayerWeights]) -> "ColumnCache":
        """Return the cache before the first token."""
        rows, length, width = memory.states.shape
        source = []
        for weights in layers:
            columns = weights.cross_kv.columns(memory.states.reshape(-1, width))
            source.append(columns.view(-1, rows, length).permute(2, 0, 1).contiguous())
        hidden = _hidden_source(memory)
        target = [memory.states.new_empty(_ROOM, 3 * width, rows) for _ in layers]
        return cls(layers, source, None if hidden is None else hidden.t()[:, None].contiguous(), target)

    def add_token(self) -> None:
        """Make room for one more token per row."""
        if self.length == len(self.target[0]):
            self.target = [F.pad(each, (0, 0, 0, 0, 0, self.length)) for each in self.target]
        self.length += 1

    def attend_target(self, number: int, x: torch.Tensor) -> torch.Tensor:
        """Store the new token's keys and values in a layer, by number; attend with its states (B, D) to all so far."""
        weights, target = self.layers[number], self.target[number][: self.length]
        weights.qkv.columns(x, out=target[-1])
        query, key, value = target.view(self.length, 3, weights.num_heads, -1, len(x)).unbind(1)
        attended = kernels.attend_columns(query[-1], key, value)
        return weights.out(attended.flatten(0, 1).t())

    def attend_source(self, number: int, x: torch.Tensor) -> torch.Tensor:
        """Attend with states (B, D) to the source in a layer, by number."""
        weights, source = self.layers[number], self.source[number]
        query = weights.cross_q.columns(x)
        key, value = source.view(len(source), 2, weights.num_heads, -1, len(x)).unbind(1)
        attended = kernels.attend_columns(query.view(key.shape[1:]), key, value, self.hidden)
        return weights.cross_out(attended.flatten(0, 1).t())

    def select(self, index: torch.Tensor) -> "ColumnCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        source = [kernels.select_columns(each, index) for each in self.source]
        hidden = None if self.hidden is None else kernels.select_columns(self.hidden, index)
        target = [kernels.select_columns(each, index) for each in self.target]
        return replace(self, source=source, hidden=hidden, target=target)

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> "ColumnCache":
        """Return the cache in which row i continues row ``index[i]``; each source has one row."""
        return self.select(index)


@dataclass
class SlotCache:
    """Keys and values in slots that all M rows of a source share, for beams.

    Each step adds a slot for each row, and slots never move. Only the set of slots that a row may attend to changes:
    those of the tokens that it continues. Beam search therefore copies no keys and values.

    Attributes:
        source: (2, B / M · H, S, K) float for each layer: keys and values.
        hidden_source: (B / M, 1, 1, S) float, -inf at PAD, else 0; None without PAD.
        target: (2, B / M · H, room, K) float for each layer.
        hidden_slots: (B / M, M, slots) float, 0 where a row continues a slot, else -inf; None: all 0.
        num_slots: slots that are in use.
        length: number of target tokens read so far.
    """

    layers: list[LayerWeights]
    source: list[torch.Tensor]
    hidden_source: torch.Tensor | None
    target: list[torch.Tensor]
    hidden_slots: torch.Tensor | None = None
    num_slots: int = 0
    rows_per_source: int = 1
    length: int = 0

    @classmethod
    def of_source(cls, memory: Memory, layers: list[LayerWeights]) -> "SlotCache":
        """Return the cache before the first token."""
        rows, length, width = memory.states.shape
        source, target = [], []
        for weights in layers:
            projected = weights.cross_kv(memory.states.reshape(-1, width))
            projected = projected.view(rows, length, 2, weights.num_heads, -1).permute(2, 0, 3, 1, 4)
            source.append(projected.reshape(2, rows * weights.num_heads, length, -1))
            target.append(projected.new_empty(2, rows * weights.num_heads, _ROOM, width // weights.num_heads))
        hidden = _hidden_source(memory)
        return cls(layers, source, None if hidden is None else hidden[:, None, None], target)

    def add_token(self) -> None:
        """Make room for one more token per row, and let each attend to its own."""
        rows = self.rows_per_source
        self.length, self.num_slots = self.length + 1, self.num_slots + rows
        if self.num_slots > self.target[0].shape[2]:
            self.target = [F.pad(each, (0, 0, 0, _ROOM * rows)) for each in self.target]
        if self.hidden_slots is not None:
            own = self.hidden_slots.new_full((rows, rows), -math.inf).fill_diagonal_(0)
            self.hidden_slots = torch.cat([self.hidden_slots, own.expand(len(self.hidden_slots), -1, -1)], dim=2)

    def attend_target(self, number: int, x: torch.Tensor) -> torch.Tensor:
        """Store the new token's keys and values in a layer, by number; attend with its states (B, D) to all so far."""
        weights, rows, end = self.layers[number], self.rows_per_source, self.num_slots
        projected = weights.qkv(x).view(-1, rows, 3, weights.num_heads, x.shape[1] // weights.num_heads)
        projected = projected.permute(2, 0, 3, 1, 4)  # (3, B / M, H, M, K)
        target = self.target[number]
        target.view(2, -1, weights.num_heads, *target.shape[2:])[:, :, :, end - rows : end] = projected[1:]
        key, value = target[:, :, :end]
        hidden = None if self.hidden_slots is None else self.hidden_slots[:, None]
        attended = kernels.attend_slots(projected[0], key, value, hidden)
        return weights.out(attended.transpose(1, 2).reshape(x.shape))

    def attend_source(self, number: int, x: torch.Tensor) -> torch.Tensor:
        """Attend with states (B, D) to the source in a layer, by number."""
        weights, rows = self.layers[number], self.rows_per_source
        query = weights.cross_q(x).view(-1, rows, weights.num_heads, x.shape[1] // weights.num_heads)
        key, value = self.source[number]
        attended = kernels.attend_slots(query.transpose(1, 2), key, value, self.hidden_source)
        return weights.cross_out(attended.transpose(1, 2).reshape(x.shape))

    def select(self, index: torch.Tensor) -> "SlotCache":
        """Return the cache of a batch made of these rows, (N,) int64."""
        return self._of_sources(index)

    def reorder(self, index: torch.Tensor, sources: torch.Tensor | None = None) -> "SlotCache":
        """Return the cache in which row i continues row ``index[i]``, index (B,) int64."""
        cache = self if sources is None else self._of_sources(sources)
        before, after = (each.source[0].shape[1] // self.layers[0].num_heads for each in (self, cache))  # sources
        rows, hidden = len(index) // after, self.hidden_slots
        if hidden is None:
            hidden = self.source[0].new_zeros(before, self.rows_per_source, self.num_slots)
        hidden = hidden.flatten(0, 1).index_select(0, index).view(after, rows, -1)
        return replace(cache, hidden_slots=hidden, rows_per_source=rows)

    def _of_sources(self, sources: torch.Tensor) -> "SlotCache":
        """Return the cache of some sources, (R,) int64; each row may attend to the same slots as here."""

        def of_heads(x: torch.Tensor) -> torch.Tensor:
            by_source = x.view(2, -1, self.layers[0].num_heads, *x.shape[2:])
            return by_source.index_select(1, sources).flatten(1, 2)

        hidden_source, hidden_slots = (
            None if each is None else each.index_select(0, sources) for each in (self.hidden_source, self.hidden_slots)
        )
        return replace(
            self,
            source=[of_heads(each) for each in self.source],
            hidden_source=hidden_source,
            target=[of_heads(each) for each in self.target],
            hidden_slots=hidden_slots,
        )


def _hidden_source(memory: Memory) -> torch.Tensor | None:
    """Return the mask to add to scores of source tokens, (B, S) float: -inf at PAD, else 0; None without PAD."""
    mask = memory.mask[:, 0, 0]
    return None if mask.all() else torch.zeros(mask.shape).masked_fill_(~mask, -math.inf)
