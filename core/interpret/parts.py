"""The parts of a model in the order of figure 1 of the paper, and the vectors that each computes for one decode."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import nn

from core.evaluation.passes import evaluation_mode
from core.interpret.interventions import NO_INTERVENTIONS, Interventions
from core.models import Seq2Seq
from core.models.embeddings import Embedding
from core.models.hooks import Hook, hook_names, hooks
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.seq2seq import Block, DecoderOutput, Memory
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.text.vocab import BOS_ID

Side = Literal["source", "target"]
Kind = Literal["embedding", "positions", "attention", "norm", "add", "feed-forward", "recurrent", "output"]


@dataclass(frozen=True)
class Part:
    """One part of a model.

    Attributes:
        name: such as "source.embedding", "encoder.1.feed-forward" or "output".
        label: as the paper names it.
        side: the side of the tokens that it works on.
        layer: from 1; None outside of the layers.
        block: for attention; None otherwise.
    """

    name: str
    label: str
    kind: Kind
    side: Side
    layer: int | None = None
    block: Block | None = None


@dataclass(frozen=True)
class PartVectors:
    """The output of a part, one row per token of its side: the source with BOS and EOS, or the decoder's input.

    Attributes:
        part: the part.
        vectors: (name, (N, ·) float) in the order of the computation: "before", "added", "activations", "after",
            "logits".
        similarity: (N, N) float, cosines of the rows of the last vectors; None for attention and output.
        patterns: for positions, the weights (H, N, N) float of the first self-attention computed from positions alone,
            with all token embeddings zero; None otherwise.
    """

    part: Part
    vectors: tuple[tuple[str, torch.Tensor], ...]
    similarity: torch.Tensor | None = None
    patterns: torch.Tensor | None = None


def model_parts(model: Seq2Seq) -> tuple[Part, ...]:
    """Return the parts of a model from input to output, those of the source's side first.

    An encoder-only model has parts of the source's side only.
    """
    return tuple(_parts(model))


def _parts(model: Seq2Seq) -> Iterator[Part]:
    layers = _layers(model)
    of_source = [layer for layer in layers if isinstance(layer, EncoderLayer)]
    of_target = [layer for layer in layers if isinstance(layer, DecoderLayer)]
    yield from _embedding_parts(model, "source")
    for number, encoder_layer in enumerate(of_source, start=1):
        yield from _layer_parts(encoder_layer, "source", "encoder", number)
    if not layers:
        yield Part("encoder.recurrent", "Recurrent layers", "recurrent", "source")
    if of_source and of_source[-1].is_pre_norm:
        yield Part("encoder.norm", "Norm", "norm", "source")
    if not of_target and layers:
        return (yield Part("output", "Linear, softmax", "output", "source"))
    yield from _embedding_parts(model, "target")
    for number, layer in enumerate(of_target, start=1):
        yield from _layer_parts(layer, "target", "decoder", number)
    if not layers:
        yield Part("cross.1", "Attention", "attention", "target", 1, "cross")
        yield Part("decoder.recurrent", "Recurrent layers", "recurrent", "target")
    if of_target and of_target[-1].is_pre_norm:
        yield Part("decoder.norm", "Norm", "norm", "target")
    yield Part("output", "Linear, softmax", "output", "target")


def _embedding_parts(model: Seq2Seq, side: Side) -> Iterator[Part]:
    yield Part(f"{side}.embedding", "Embedding", "embedding", side)
    if getattr(_embedding(model, side), "positions", None) is not None:
        yield Part(f"{side}.positions", "+ Positions", "positions", side)


def _layer_parts(layer: EncoderLayer | DecoderLayer, side: Side, stack: Block, number: int) -> Iterator[Part]:
    sublayers: list[tuple[str, str, Kind, Block | None]] = [
        (stack, "Self-attention" if side == "source" else "Masked self-attention", "attention", stack)
    ]
    if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
        sublayers.append(("cross", "Cross-attention", "attention", "cross"))
    sublayers.append(("feed-forward", "Feed-forward", "feed-forward", None))
    for name, label, kind, block in sublayers:
        own = f"{stack}.{number}.{name}"
        if layer.is_pre_norm:
            yield Part(f"{own}.norm", "Norm", "norm", side, number)
        yield Part(f"{block}.{number}" if block else own, label, kind, side, number, block)
        yield Part(f"{own}.add", "Add" if layer.is_pre_norm else "Add & Norm", "add", side, number)


# ---- what a part computes


@torch.no_grad()
def part_vectors(
    model: Seq2Seq,
    src: torch.Tensor,
    tokens: torch.Tensor,
    name: str,
    interventions: Interventions = NO_INTERVENTIONS,
) -> PartVectors:
    """Return the vectors that a part of a model computes in a teacher-forced pass over an answer.

    Args:
        src: (1, S) int64.
        tokens: (1, T) int64, the answer, as ``generate`` returns it.
        name: a part that is not attention; see ``model_parts``.
        interventions: applied to the pass.

    Raises:
        InputError: the model has no such part, or it is attention.
    """
    part = next((each for each in model_parts(model) if each.name == name), None)
    if part is None or part.kind == "attention":
        raise InputError(f"part={short_repr(name)} is not one of {', '.join(_names(model))}")
    tgt_in = torch.cat([torch.full_like(tokens[:, :1], BOS_ID), tokens[:, :-1]], dim=1)
    with evaluation_mode(model), interventions.applied_to(model):
        recorded = _record(model, src, tgt_in)
        vectors = tuple((each, values.cpu()) for each, values in _vectors(model, part, recorded))
        patterns = _patterns_of_positions(model, src, tgt_in, part) if part.kind == "positions" else None
    last = vectors[-1][1].double()
    similarity = None if part.kind == "output" else F.cosine_similarity(last[:, None], last[None], dim=-1)
    return PartVectors(part, vectors, similarity, patterns)


def _names(model: Seq2Seq) -> list[str]:
    return [part.name for part in model_parts(model) if part.kind != "attention"]


@dataclass(frozen=True)
class _Recorded:
    """The tensors at all hook points while the source and the answer were read, and the results of both calls."""

    of_source: dict[str, torch.Tensor]
    of_target: dict[str, torch.Tensor]
    memory: Memory
    output: DecoderOutput
    hidden: torch.Tensor | None  # (T, D), the states of a recurrent decoder

    def of(self, side: Side) -> dict[str, torch.Tensor]:
        """Return the tensors of a side."""
        return self.of_source if side == "source" else self.of_target


def _record(model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor) -> _Recorded:
    of_source: dict[str, torch.Tensor] = {}
    of_target: dict[str, torch.Tensor] = {}
    names = hook_names(model)
    with hooks({name: partial(of_source.__setitem__, name) for name in names}):
        memory = model.encode(src)
    if memory.final is None:
        with hooks({name: partial(of_target.__setitem__, name) for name in names}):
            output = model.decode(tgt_in, memory)
        return _Recorded(of_source, of_target, memory, output, None)
    with hooks({name: partial(of_target.__setitem__, name) for name in names}):
        output = model.decode(tgt_in, memory)
    states, cache = [], None
    for token in tgt_in.split(1, dim=1):  # one at a time, because the cache only holds the last state
        cache = model.decode(token, memory, cache).cache
        states.append(cache.hidden[-1, 0])
    return _Recorded(of_source, of_target, memory, output, torch.stack(states)[:, : memory.states.shape[-1]])


def _vectors(model: Seq2Seq, part: Part, recorded: _Recorded) -> list[tuple[str, torch.Tensor]]:
    tensors = recorded.of(part.side)
    embedding = _embedding(model, part.side)
    if part.kind == "embedding":
        return [("after", tensors[embedding.hook_embed.name][0])]
    if part.kind == "positions":
        positions = tensors[embedding.hook_pos_embed.name]
        return [("after", positions if positions.ndim == 2 else positions[0])]
    if part.kind == "output":
        if part.side == "target":
            return [("logits", recorded.output.logits[0])]
        return [("logits", model.output(recorded.memory.states, embedding)[0])]  # type: ignore[operator] # a Module
    if part.kind == "recurrent":
        states = recorded.memory.states[0] if part.side == "source" else recorded.hidden
        return [("after", states)] if states is not None else []
    layers = [each for each in _layers(model) if isinstance(each, EncoderLayer) == (part.side == "source")]
    if part.layer is None:
        before = tensors[layers[-1].hook_resid_post.name][0]
        return [("before", before), ("after", _final_norm(model, part.side)(before))]
    layer = layers[part.layer - 1]
    sublayer, norm, before_point, after_point = _sublayer(layer, part.name.split(".")[2])
    before = tensors[before_point.name][0]
    if part.kind == "norm":
        return [("before", before), ("after", norm(before))]
    added = tensors[sublayer.hook_out.name][0]
    if part.kind == "feed-forward":
        return [("activations", tensors[layer.feed_forward.hook_post.name][0]), ("after", added)]
    return [("before", before), ("added", added), ("after", tensors[after_point.name][0])]


def _sublayer(layer: EncoderLayer | DecoderLayer, name: str) -> tuple:
    """Return module, norm, and the points of the residual stream before and after a sublayer."""
    last = layer.hook_resid_mid
    if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
        last = layer.hook_resid_cross
        if name == "cross":
            return layer.cross_attention, layer.norm_cross, layer.hook_resid_mid, last
    if name == "feed-forward":
        return layer.feed_forward, layer.norm_feed_forward, last, layer.hook_resid_post
    norm = layer.norm_attention if isinstance(layer, EncoderLayer) else layer.norm_self
    return layer.self_attention, norm, layer.hook_resid_pre, layer.hook_resid_mid


def _patterns_of_positions(model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor, part: Part) -> torch.Tensor | None:
    """Return the weights of the first self-attention if all token embeddings were zero."""
    recorded: dict[str, torch.Tensor] = {}
    block: Block = "encoder" if part.side == "source" and ("encoder", 1) in model.attention else "decoder"
    names = {each.hook_embed.name for each in model.modules() if isinstance(each, Embedding)}
    pattern = model.attention[block, 1].hook_pattern.name
    zeros: dict[str, Hook] = dict.fromkeys(names, lambda embedded: torch.zeros_like(embedded))
    with hooks(zeros | {pattern: partial(recorded.__setitem__, pattern)}):
        memory = model.encode(src)
        if part.side == "target":
            model.decode(tgt_in, memory)
    weights = recorded[pattern][0].cpu()
    return weights[..., -weights.shape[-2] :]  # a decoder-only model's target also attends to its source


def _layers(model: Seq2Seq) -> list[EncoderLayer | DecoderLayer]:
    return [module for module in model.modules() if isinstance(module, EncoderLayer | DecoderLayer)]


def _embedding(model: Seq2Seq, side: Side) -> Embedding:
    """Return the embedding of a side; if both share one, the target's."""
    source = getattr(model, "src_embedding", None)
    return cast(Embedding, source if side == "source" and source is not None else model.tgt_embedding)


def _final_norm(model: Seq2Seq, side: Side) -> nn.Module:
    name = "norm" if hasattr(model, "norm") else "encoder_norm" if side == "source" else "decoder_norm"
    return cast(nn.Module, getattr(model, name))
