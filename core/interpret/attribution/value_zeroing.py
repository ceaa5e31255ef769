"""Value zeroing: how much a layer's output changes without the values of one token (Mohebbi et al. 2023)."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F

from core.interpret.attribution.prediction import Prediction
from core.models import Seq2Seq
from core.models.attention import MultiHeadAttention
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.hooks import Hook, HookPoint, hooks
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.seq2seq import Block, Memory
from core.models.transformer import Transformer
from core.storage.errors import InputError

LIMITS = (
    "Shows how much a layer's output at each position depends on what it took from each token in that layer; it cannot "
    "show what reaches the prediction, since later layers are not part of it."
)


@dataclass(frozen=True, eq=False)
class ValueZeroing:
    """1 - cosine of a layer's outputs without and with one token's values: 0 no change, 2 the opposite direction.

    Attributes:
        encoder: (L, S, S) float, output position by zeroed token; None without an encoder of attention layers.
        decoder: (L, T, T) float; in a decoder-only model (L, T, S + T), the source first; None without self-attention.
        cross: (L, T, S) float; None without cross-attention. In recurrent models the output is the decoder's hidden
            state after a step, with the values zeroed in this and all earlier steps.
    """

    encoder: torch.Tensor | None
    decoder: torch.Tensor | None
    cross: torch.Tensor | None


@torch.no_grad()
def value_zeroing(model: Seq2Seq, prediction: Prediction) -> ValueZeroing:
    """Zero the values of one token in one layer at a time, in all heads, and compare the layer's outputs.

    A layer's output is the residual stream after it. The pass ends there, because later layers do not matter and the
    scores of a large vocabulary would take longest. All tokens of a layer are rows of one batch.

    Args:
        model: in evaluation mode, of any family.

    Raises:
        InputError: the model has no attention, or that of its family is not known here.
    """
    if isinstance(model, Transformer):
        encoder = [cast(EncoderLayer, layer) for layer in model.encoder_layers]
        decoder = [cast(DecoderLayer, layer) for layer in model.decoder_layers]
        return ValueZeroing(
            torch.stack([_in_encoder(model, prediction, layer) for layer in encoder]),
            torch.stack([_in_decoder(model, prediction, layer, "decoder") for layer in decoder]),
            torch.stack([_in_decoder(model, prediction, layer, "cross") for layer in decoder]),
        )
    if isinstance(model, DecoderOnly):
        layers = [cast(DecoderLayer, layer) for layer in model.layers]
        over = torch.stack([_in_decoder_only(model, prediction, layer) for layer in layers])
        return ValueZeroing(None, over, None)
    if isinstance(model, EncoderOnly):
        encoder = [cast(EncoderLayer, layer) for layer in model.encoder_layers]
        return ValueZeroing(torch.stack([_in_encoder(model, prediction, layer) for layer in encoder]), None, None)
    if isinstance(model, GRUSeq2Seq):
        if model.decoder.attention is None:
            raise InputError("value zeroing needs attention, and this model has none")
        values = model.decoder.attention.hook_v
        return ValueZeroing(None, None, _in_recurrent(model, prediction, values)[None])
    raise InputError(f"value zeroing is not available for {type(model).__name__}")


def _in_encoder(model: Transformer | EncoderOnly, prediction: Prediction, layer: EncoderLayer) -> torch.Tensor:
    """Return a layer's (S, S)."""
    count = prediction.src.shape[1]
    with hooks(_zeroed(layer.self_attention.hook_v, range(count))):
        return _changes(_output(layer, lambda: model.encode(prediction.src.expand(count + 1, -1))))


def _in_decoder(model: Transformer, prediction: Prediction, layer: DecoderLayer, block: Block) -> torch.Tensor:
    """Return a layer's (T, T) of self-attention, or (T, S) of cross-attention."""
    attention = cast(MultiHeadAttention, layer.self_attention if block == "decoder" else layer.cross_attention)
    count = (prediction.tgt_in if block == "decoder" else prediction.src).shape[1]
    memory = _repeated(model.encode(prediction.src), count + 1)
    with hooks(_zeroed(attention.hook_v, range(count))):
        return _changes(_output(layer, lambda: model.decode(prediction.tgt_in.expand(count + 1, -1), memory)))


def _in_decoder_only(model: DecoderOnly, prediction: Prediction, layer: DecoderLayer) -> torch.Tensor:
    """Return a layer's (T, S + T)."""
    source, target = prediction.src.shape[1], prediction.tgt_in.shape[1]
    rows, values = source + target + 1, layer.self_attention.hook_v
    with hooks(_zeroed(values, range(source))):
        memory = model.encode(prediction.src.expand(rows, -1))
    with hooks(_zeroed(values, range(source, source + target))):
        return _changes(_output(layer, lambda: model.decode(prediction.tgt_in.expand(rows, -1), memory)))


def _in_recurrent(model: GRUSeq2Seq, prediction: Prediction, values: HookPoint) -> torch.Tensor:
    """Return the decoder's (T, S)."""
    decoder, count = model.decoder, prediction.src.shape[1]
    memory = _repeated(model.encode(prediction.src), count + 1)
    states: list[torch.Tensor] = []
    with hooks(_zeroed(values, range(count)) | {decoder.hook_state.name: states.append}):
        model.decode(prediction.tgt_in.expand(count + 1, -1), memory)
    return _changes(torch.stack([state[-1, :, : decoder.d_hidden] for state in states], dim=1))


def _zeroed(point: HookPoint, rows: range) -> dict[str, Hook]:
    """Return a hook that zeroes, in these rows of the batch, the values of the first token, the second, and so on."""

    def zero(values: torch.Tensor) -> torch.Tensor:
        values = values.clone()
        for token, row in enumerate(rows):
            values[row, ..., token, :] = 0  # (B, H, T, K) or (B, S, D)
        return values

    return {point.name: zero}


class _Reached(Exception):  # noqa: N818 - ends a pass; not an error
    """Raised when a pass has computed the output that it is needed for."""


def _output(layer: EncoderLayer | DecoderLayer, run: Callable[[], object]) -> torch.Tensor:
    """Return the residual stream after a layer; the pass ends there."""
    outputs: list[torch.Tensor] = []

    def stop(states: torch.Tensor) -> None:
        outputs.append(states)
        raise _Reached

    with contextlib.suppress(_Reached), hooks({layer.hook_resid_post.name: stop}):
        run()
    return outputs[0]


def _repeated(memory: Memory, rows: int) -> Memory:
    return memory.select(torch.zeros(rows, dtype=torch.int64, device=memory.states.device))


def _changes(outputs: torch.Tensor) -> torch.Tensor:
    """Return 1 - cosine (T, N) of outputs (N + 1, T, D): a row per zeroed token, then the unchanged one."""
    return 1 - F.cosine_similarity(outputs[:-1], outputs[-1:], dim=-1).T
