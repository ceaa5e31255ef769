"""Direct logit attribution: how much each head, feed-forward network, bias and embedding adds to a logit.

The residual stream is a sum, and the unembedding is linear, so the logit is a sum of what the layers added to the
stream at the predicting position (Elhage et al. 2021). The norms are not linear: their scale is frozen, that is, each
divides by the standard deviation of the stream that this run had.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import nn

from core.interpret.attribution.prediction import Prediction
from core.interpret.attribution.stack import ResidualStack, residual_stack
from core.models import Seq2Seq
from core.models.attention import MultiHeadAttention
from core.models.embeddings import Output
from core.models.hooks import HookPoint
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.seq2seq import Block, Head
from core.storage.errors import InputError

LIMITS = (
    "Shows what each part writes into the logit itself, at the position that predicts the token, with the scale of the "
    "norms frozen; it cannot show what a part does through later layers or at other positions, and so gives an encoder "
    "that only a decoder reads no share of its own."
)
Norm = nn.LayerNorm | nn.RMSNorm
PartKind = Literal["embedding", "position", "head", "attention bias", "feed-forward", "norm bias", "output bias", "set"]
_REPLACED = 1e-3  # relative difference above which a hook has replaced the residual stream; rounding stays below


@dataclass(frozen=True)
class Contribution:
    """The contribution of one part of the model to the logit, or to the difference of two logits.

    Attributes:
        name: unique, such as ``cross.2.1`` of a head, ``cross.2 bias``, ``feed-forward 2`` or ``token embedding``.
        kind: what the part is; "set" is a residual stream that a hook has replaced, as the bug of a lesson does.
        layer: numbered from 1; None of embeddings, final norm and output bias.
        head: of a head.
        logit: the contribution, in units of the logit (nats).
    """

    name: str
    kind: PartKind
    layer: int | None
    head: Head | None
    logit: float


@dataclass(frozen=True)
class LogitAttribution:
    """The logit of a prediction as a sum.

    Attributes:
        parts: in the order of computation; their logits sum to ``logit`` up to rounding.
        logit: the model's logit of the target, minus the foil's if there is one.
        num_frozen: number of norms with a frozen scale: with pre-norm 1, the final one; with post-norm all norms of the
            stack, because a part passes through every later norm, so its share depends on more frozen scales.
    """

    parts: tuple[Contribution, ...]
    logit: float
    num_frozen: int

    @property
    def ranked(self) -> tuple[Contribution, ...]:
        """The parts, largest absolute contribution first."""
        return tuple(sorted(self.parts, key=lambda part: -abs(part.logit)))

    @property
    def heads(self) -> dict[Head, float]:
        """Contributions of the heads."""
        return {part.head: part.logit for part in self.parts if part.head is not None}


@torch.no_grad()
def direct_logit_attribution(model: Seq2Seq, prediction: Prediction) -> LogitAttribution:
    """Split the logit of a prediction, or the difference to its foil, into a sum over parts.

    The parts are those of the decoder, or of an encoder-only model's encoder, at the position that predicts the token.

    With pre-norm, only the scale of the final norm is frozen: its divisor is that of this run, and everything before it
    is exactly additive. With post-norm, the scales of all norms are frozen; ``num_frozen`` counts them.

    Args:
        model: in evaluation mode, of any family but the recurrent one.

    Raises:
        InputError: the model is recurrent, so it has no residual stream; or its norm or output layer is a plugin's.
    """
    stack = residual_stack(model, method="direct logit attribution")
    _check_is_built_in(stack)
    recorded: dict[str, list[torch.Tensor]] = {}
    logits = stack.logits(prediction, {point.name: partial(_record, recorded, point.name) for point in _points(stack)})
    stream = _Stream(recorded, prediction.row)
    stream.add("token embedding", "embedding", None, stream.at(stack.embedding.hook_embed))
    if stack.embedding.positions is not None:
        stream.add("position embedding", "position", None, stream.at(stack.embedding.hook_pos_embed))
    if isinstance(stack.embedding.norm, Norm):
        stream.normalize(stack.embedding.norm, "embedding norm bias", None)
    for number, layer in enumerate(stack.layers, start=1):
        _add_layer(stream, layer, number)
    if isinstance(stack.norm, Norm):
        stream.normalize(stack.norm, "final norm bias", None)
    weight = stack.output.weight if stack.output.weight is not None else stack.embedding.output_weight()
    parts = stream.contributions(prediction.score(weight.double().T))
    bias = Contribution("output bias", "output bias", None, None, prediction.score(stack.output.bias).item())
    return LogitAttribution((*parts, bias), prediction.score(logits).item(), stream.num_frozen)


def _check_is_built_in(stack: ResidualStack) -> None:
    norms = [stack.norm, *(norm for layer in stack.layers for name, norm in layer.named_children() if "norm" in name)]
    for norm in norms:
        if not isinstance(norm, Norm | nn.Identity):
            raise InputError(f"direct logit attribution can split the built-in norms only, not a {type(norm).__name__}")
    if type(stack.output) is not Output:
        name = type(stack.output).__name__
        raise InputError(f"direct logit attribution can split the built-in output layer only, not a {name}")


class _Stream:
    """The residual stream of one position, as a list of summands (D,) float64."""

    def __init__(self, recorded: dict[str, list[torch.Tensor]], position: int) -> None:
        self.recorded, self.position, self.num_frozen = recorded, position, 0
        self.parts: list[tuple[str, PartKind, int | None, Head | None, torch.Tensor]] = []

    def at(self, point: HookPoint, call: int = 0) -> torch.Tensor:
        """Return the recording of a point in its n-th call, at the position, (…, D) float64."""
        x, at = self.recorded[point.name][call], self.position
        return (x[0, :, at] if x.ndim == 4 else x.flatten(0, -2)[at]).double()  # z is (1, H, T, K)

    def add(self, name: str, kind: PartKind, layer: int | None, part: torch.Tensor, head: Head | None = None) -> None:
        """Add a part (D,) to the stream."""
        self.parts.append((name, kind, layer, head, part))

    def skip(self, x: torch.Tensor, layer: int) -> None:
        """Pass a residual connection with output ``x`` (D,): the stream, unless a hook has replaced it."""
        total = self.total()
        if (x - total).abs().max() > _REPLACED * (1 + total.abs().max()):
            self.parts = []
            self.add(f"replaced residual stream {layer}", "set", layer, x)

    def total(self) -> torch.Tensor:
        """Return the stream itself, (D,)."""
        return torch.stack([part for *_, part in self.parts]).sum(dim=0)

    def normalize(self, norm: Norm, name: str, layer: int | None) -> None:
        """Pass a norm, which is linear once its divisor is frozen; a layer norm adds its bias."""
        if isinstance(norm, nn.LayerNorm):
            self.parts = [(*names, part - part.mean()) for *names, part in self.parts]  # type: ignore[misc] # names
        scale = norm.weight.double() / (self.total().square().mean() + (norm.eps or 0.0)).sqrt()
        self.parts = [(*names, part * scale) for *names, part in self.parts]  # type: ignore[misc] # names
        if isinstance(norm, nn.LayerNorm):
            self.add(name, "norm bias", layer, norm.bias.double())
        self.num_frozen += 1

    def contributions(self, direction: torch.Tensor) -> tuple[Contribution, ...]:
        """Return the product of every part with a direction (D,) float64."""
        return tuple(
            Contribution(name, kind, layer, head, (part @ direction).item())
            for name, kind, layer, head, part in self.parts
        )


def _record(recorded: dict[str, list[torch.Tensor]], name: str, x: torch.Tensor) -> None:
    recorded.setdefault(name, []).append(x)


def _points(stack: ResidualStack) -> list[HookPoint]:
    """Return the hook points that are read."""
    points = [stack.embedding.hook_embed, stack.embedding.hook_pos_embed]
    for layer in stack.layers:
        points += [layer.hook_skip, layer.feed_forward.hook_out]
        for _, attention, _ in _attention_of(layer):
            points += [attention.hook_z, attention.hook_out]
    return points


def _attention_of(layer: EncoderLayer | DecoderLayer) -> list[tuple[Block, MultiHeadAttention, nn.Module]]:
    """Return the attention sublayers of a layer with their norms."""
    if isinstance(layer, EncoderLayer):
        return [("encoder", layer.self_attention, layer.norm_attention)]
    sublayers: list[tuple[Block, MultiHeadAttention, nn.Module]] = [("decoder", layer.self_attention, layer.norm_self)]
    if layer.cross_attention is not None:
        sublayers.append(("cross", layer.cross_attention, layer.norm_cross))
    return sublayers


def _add_layer(stream: _Stream, layer: EncoderLayer | DecoderLayer, number: int) -> None:
    """Add the outputs of a layer's sublayers to the stream."""
    sublayers = _attention_of(layer)
    for call, (block, attention, norm) in enumerate(sublayers):
        stream.skip(stream.at(layer.hook_skip, call), number)
        z, out = stream.at(attention.hook_z), stream.at(attention.hook_out)  # (H, K) and (D,)
        columns = attention.w_o.weight.double().unflatten(1, z.shape)  # (D, H, K)
        by_head = torch.einsum("hk,dhk->hd", z, columns)
        for head, part in enumerate(by_head, start=1):
            named = Head(block, number, head)
            stream.add(str(named), "head", number, part, named)
        stream.add(f"{block}.{number} bias", "attention bias", number, out - by_head.sum(dim=0))
        if isinstance(norm, Norm) and not layer.is_pre_norm:
            stream.normalize(norm, f"{block}.{number} norm bias", number)
    stream.skip(stream.at(layer.hook_skip, len(sublayers)), number)
    stream.add(f"feed-forward {number}", "feed-forward", number, stream.at(layer.feed_forward.hook_out))
    if isinstance(layer.norm_feed_forward, Norm) and not layer.is_pre_norm:
        stream.normalize(layer.norm_feed_forward, f"feed-forward {number} norm bias", number)
