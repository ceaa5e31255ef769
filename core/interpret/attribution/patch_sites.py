"""The activations that activation patching can replace in a model: grids of sites with rows of named activations."""

from dataclasses import dataclass
from typing import Literal, cast

from core.interpret.attribution.stack import residual_points
from core.models import Seq2Seq
from core.models.attention import MultiHeadAttention
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.hooks import HookPoint
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.seq2seq import BLOCKS, Block
from core.models.transformer import Transformer
from core.storage.errors import InputError

Phase = Literal["encode", "decode"]
GridName = Literal["residual stream", "states", "attention output", "heads"]
Positions = Literal["source", "target"]
# How a tensor is indexed: "cells" (B, positions or heads, …); "steps": one call per position, (B, …);
# "states": one call per position, (L, B, …); "last": (L, B, …), computed from the last position.
Layout = Literal["cells", "steps", "states", "last"]


@dataclass(frozen=True, eq=False)
class Activation:
    """One hook point in one phase of a forward pass, and the layout of its tensor."""

    phase: Phase
    point: HookPoint
    layout: Layout = "cells"


Rows = tuple[tuple[str, tuple[Activation, ...]], ...]


@dataclass(frozen=True)
class SiteGrid:
    """The sites of one heat map.

    Attributes:
        name: of the activations; "states" are those of recurrent models.
        block: the block of the activations.
        positions: what the columns are: positions of the source or of the decoder's input; None for heads.
        rows: a label, and the activations that are patched together, for each row.
    """

    name: GridName
    block: Block
    positions: Positions | None
    rows: Rows


def site_grids(model: Seq2Seq) -> list[SiteGrid]:
    """Return all grids of a model.

    Raises:
        InputError: the activations of the model's family are not known here.
    """
    if isinstance(model, Transformer):
        encoder = [cast(EncoderLayer, layer) for layer in model.encoder_layers]
        decoder = [cast(DecoderLayer, layer) for layer in model.decoder_layers]
        return [
            SiteGrid("residual stream", "encoder", "source", _residual(encoder, "encode")),
            SiteGrid("residual stream", "decoder", "target", _residual(decoder, "decode")),
            SiteGrid("attention output", "encoder", "source", _attention_output(model, "encoder", "encode")),
            SiteGrid("attention output", "decoder", "target", _attention_output(model, "decoder", "decode")),
            SiteGrid("attention output", "cross", "target", _attention_output(model, "cross", "decode")),
            *(_heads(model, block, ("encode",) if block == "encoder" else ("decode",)) for block in BLOCKS),
        ]
    if isinstance(model, DecoderOnly):
        layers = [cast(DecoderLayer, layer) for layer in model.layers]
        return [
            SiteGrid("residual stream", "decoder", "source", _residual(layers, "encode")),
            SiteGrid("residual stream", "decoder", "target", _residual(layers, "decode")),
            SiteGrid("attention output", "decoder", "source", _attention_output(model, "decoder", "encode")),
            SiteGrid("attention output", "decoder", "target", _attention_output(model, "decoder", "decode")),
            _heads(model, "decoder", ("encode", "decode")),
        ]
    if isinstance(model, EncoderOnly):
        encoder = [cast(EncoderLayer, layer) for layer in model.encoder_layers]
        return [
            SiteGrid("residual stream", "encoder", "source", _residual(encoder, "encode")),
            SiteGrid("attention output", "encoder", "source", _attention_output(model, "encoder", "encode")),
            _heads(model, "encoder", ("encode",)),
        ]
    if isinstance(model, GRUSeq2Seq):
        return _recurrent(model)
    raise InputError(f"activation patching is not available for {type(model).__name__}")


def _residual(layers: list[EncoderLayer] | list[DecoderLayer], phase: Phase) -> Rows:
    """Return the residual stream: the embedding, then the stream after each sublayer."""
    return tuple((label, (Activation(phase, point),)) for label, _, point in residual_points(layers))


def _attention_output(model: Seq2Seq, block: Block, phase: Phase) -> Rows:
    """Return the output of each layer's attention, before the residual connection."""
    return tuple(
        (str(layer), (Activation(phase, attention.hook_out),))
        for (of, layer), attention in model.attention.items()
        if of == block and isinstance(attention, MultiHeadAttention)
    )


def _heads(model: Seq2Seq, block: Block, phases: tuple[Phase, ...], layout: Layout = "cells") -> SiteGrid:
    """Return the outputs z of the heads of a block, at all positions together."""
    rows = tuple(
        (str(layer), tuple(Activation(phase, attention.hook_z, layout) for phase in phases))
        for (of, layer), attention in model.attention.items()
        if of == block
    )
    return SiteGrid("heads", block, None, rows)


def _recurrent(model: GRUSeq2Seq) -> list[SiteGrid]:
    """Return the states of a recurrent model; the encoder's state at the last position starts the decoder."""
    encoder, decoder = model.encoder, model.decoder
    states = (Activation("encode", encoder.hook_states), Activation("encode", encoder.hook_final, "last"))
    grids = [
        SiteGrid(
            "states",
            "encoder",
            "source",
            (("embedding", (Activation("encode", model.src_embedding.hook_embed),)), ("encoder states", states)),
        ),
        SiteGrid(
            "states", "decoder", "target", (("decoder states", (Activation("decode", decoder.hook_state, "states"),)),)
        ),
    ]
    if decoder.attention is None:
        return grids
    outputs = (("1", (Activation("decode", decoder.attention.hook_z, "steps"),)),)
    return [*grids, SiteGrid("attention output", "cross", "target", outputs), _heads(model, "cross", ("decode",))]
