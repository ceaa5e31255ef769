"""The arithmetic of one attention weight: from query and key to the score, the weights of the row, and the answer.

One teacher-forced pass over an answer records the tensors at the hook points. Every line is then computed again, in
float64, from the recording of the previous line. If a recorded tensor was replaced (by an ablation, a pattern or a
bug), the two differ; ``CellArithmetic.replaced`` names these lines.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import nn

from core.evaluation.passes import evaluation_mode
from core.interpret.interventions import NO_INTERVENTIONS, Interventions
from core.models import Seq2Seq
from core.models.additive_attention import AdditiveAttention, LocationSensitiveAttention, SingleHeadAttention
from core.models.attention import MultiHeadAttention, log_length, masked_softmax
from core.models.encoder_only import EncoderOnly
from core.models.hooks import HookPoint, hooks
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.linear_attention import EPSILON, LinearAttention
from core.models.positions import RelativeEncoding, Rotation
from core.models.seq2seq import Head
from core.storage.errors import InputError
from core.text.vocab import BOS_ID

Method = Literal["dot product", "linear", "additive"]
Line = Literal["scores", "weights", "output", "sublayer", "stream"]
TOLERANCE = 1e-4  # a recorded number that differs more from its line, relative to the largest, was replaced


@dataclass(frozen=True)
class StreamStep:
    """One sublayer's change of the residual stream at the row's position.

    Attributes:
        name: "attention" (the head's own), "cross-attention" or "feed-forward".
        before: (D,) float64, the stream that the sublayer's output is added to.
        added: (D,) float64, the sublayer's output.
        after: (D,) float64; with post-norm the layer norm of the sum, with pre-norm the sum.
    """

    name: str
    before: torch.Tensor
    added: torch.Tensor
    after: torch.Tensor


@dataclass(frozen=True)
class CellAnswer:
    """The model's output at the row, a decoding step, with and without the head.

    Attributes:
        logits: (V,) float64.
        logits_without: (V,) float64, of the same pass with the head's output replaced by zeros at every position.
        produced: id of the token that the answer has at this step.
    """

    logits: torch.Tensor
    logits_without: torch.Tensor
    produced: int


@dataclass(frozen=True)
class CellArithmetic:
    """The computation of one weight of an attention map, and its effect on the answer.

    K is the width of a head, Tk the number of keys, D the width of the residual stream. All tensors are float64 on the
    CPU.

    Attributes:
        head, row, column: the cell; row and column from 0.
        method: "dot product": q·k / √K (Vaswani et al. 2017, eq. 1); "linear": φ(q)·φ(k) with φ(x) = elu(x) + 1
            (Katharopoulos et al. 2020); "additive": v·tanh(q + k) with q = W_s s and k = W_h h (Bahdanau et al. 2015),
            and in location-sensitive attention v·tanh(q + k + l); 0 in last-token attention.
        query, key: (K,), as used in the products: φ(q) and φ(k) in linear attention, rotated with RoPE, q divided
            by the temperature, and times ``log_length`` for scores scaled by it.
        location: (K,), l = W_f f, computed from the weights of the previous step (Chorowski et al. 2015); None in all
            attention that is not location-sensitive.
        products: (K,), by dimension: q·k, or v·tanh(q + k + l).
        divisor: of the sum of the products: √K, or 1; 1 / ``log_length`` in location-sensitive attention.
        bias: (Tk,) added to the scores, by ALiBi; None without one.
        scores: (Tk,), after the division and the bias.
        visible: (Tk,) bool, False where the mask hides the key.
        weights: (Tk,), the row of the map.
        values: (Tk, K).
        weighted_sum: (K,), Σ weight · value.
        rotated_back: whether the sum is rotated back by the query's position (VO-RoPE) before it is the output.
        output: (K,), the head's output z.
        head_addition: (D,), W_o z, this head's part of the sublayer's output; None for additive attention, where the
            output is an input of the recurrent cell.
        stream: the head's sublayer and later sublayers of its layer; () in a recurrent model.
        answer: None if the row is not a decoding step, as in the encoder of an encoder-decoder.
        replaced: lines with recorded numbers that do not follow from the previous line: "scores", "weights", "output",
            "sublayer" (the sum of all heads and the bias of W_o) or "stream" (the additions and norms).
    """

    head: Head
    row: int
    column: int
    method: Method
    query: torch.Tensor
    key: torch.Tensor
    location: torch.Tensor | None
    products: torch.Tensor
    divisor: float
    bias: torch.Tensor | None
    scores: torch.Tensor
    visible: torch.Tensor
    weights: torch.Tensor
    values: torch.Tensor
    weighted_sum: torch.Tensor
    rotated_back: bool
    output: torch.Tensor
    head_addition: torch.Tensor | None
    stream: tuple[StreamStep, ...]
    answer: CellAnswer | None
    replaced: tuple[Line, ...]


@torch.no_grad()
def cell_arithmetic(
    model: Seq2Seq,
    src: torch.Tensor,
    tokens: torch.Tensor,
    head: Head,
    row: int,
    column: int,
    interventions: Interventions = NO_INTERVENTIONS,
) -> CellArithmetic:
    """Return the arithmetic of one weight.

    Args:
        model: its mode and all random generators are unchanged.
        src: (1, S) int64.
        tokens: (1, T) int64, the answer, as ``generate`` returns it.
        row: a decoding step or, in the encoder, a source token, from 0.
        column: a key, from 0; see ``AttentionMaps`` for their order.
        interventions: applied to the pass.

    Raises:
        InputError: the model has no such head, or the map no such cell.
    """
    if head not in model.heads:
        raise InputError(f"head={head} is not in this model")
    tgt_in = torch.cat([torch.full_like(tokens[:, :1], BOS_ID), tokens[:, :-1]], dim=1)
    module = model.attention[head.block, head.layer]
    with evaluation_mode(model), interventions.applied_to(model):
        recorded = _record(model, src, tgt_in, head)
        rows, columns = recorded.of(module, "hook_pattern").shape[-2:]
        for name, index, count in (("row", row, rows), ("column", column, columns)):
            if not 0 <= index < count:
                raise InputError(f"{name}={index + 1} is not in the map of {head}, which has {count}")
        answer, step = None, _step_of(model, head, row)
        if step is not None and 0 <= step < tokens.shape[1]:
            logits = model(src, tgt_in)[0, step].double().cpu()
            with Interventions((head,)).applied_to(model):
                without = model(src, tgt_in)[0, step].double().cpu()
            answer = CellAnswer(logits, without, produced=int(tokens[0, step]))
    lines = _additive if isinstance(module, SingleHeadAttention) else _multi_head
    return lines(model, recorded, head, row, column, answer)


# ---- recording


@dataclass(frozen=True)
class _Recorded:
    """The tensors at the hook points of one pass, by name, each a list of calls."""

    calls: Mapping[str, list[torch.Tensor]]

    def of(self, module: nn.Module, point: str) -> torch.Tensor:
        """Return the tensor at a hook point of a module, float64 or bool; calls are joined along the tokens."""
        calls = self.calls[getattr(module, point).name]
        if calls[0].ndim == 2:  # one query of a recurrent decoder each
            calls = [each[:, None, None] for each in calls]
        joined = calls[0] if len(calls) == 1 else torch.cat(calls, dim=2)
        return joined.cpu() if joined.dtype == torch.bool else joined.cpu().double()

    def row_of(self, module: nn.Module, point: str, shape: torch.Size, head: int, row: int) -> torch.Tensor | None:
        """Return a row (Tk,) of a tensor broadcastable to (1, H, Tq, Tk); None if the point was not reached."""
        name = getattr(module, point).name
        if not self.calls[name]:
            return None
        return self.calls[name][0].cpu().expand(shape)[0, head, row]


def _record(model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor, head: Head) -> _Recorded:
    """Run a pass and record the attention module and the layer of a head."""
    attention = model.attention[head.block, head.layer]
    layer = _layer_of(model, head)
    modules: list[nn.Module] = [attention, *((layer, layer.feed_forward) if layer else ())]
    points = [value for module in modules for value in vars(module).values() if isinstance(value, HookPoint)]
    if isinstance(layer, DecoderLayer) and head.block == "decoder" and layer.cross_attention is not None:
        points.append(layer.cross_attention.hook_out)
    calls: dict[str, list[torch.Tensor]] = {point.name: [] for point in points}
    with hooks({name: each.append for name, each in calls.items()}):
        memory = model.encode(src)
        if head.block == "encoder":
            return _Recorded(calls)
        for name, of_source in calls.items():
            if not name.endswith(("hook_k", "hook_v")):  # a decoder-only model has also read the source, without rows
                of_source.clear()
        model.decode(tgt_in, memory)
    return _Recorded(calls)


def _step_of(model: Seq2Seq, head: Head, row: int) -> int | None:
    """Return the decoding step that a row of a head's map is, or None; an encoder-only model answers row by row."""
    if head.block != "encoder":
        return row
    return row - 1 if isinstance(model, EncoderOnly) else None


def _layer_of(model: Seq2Seq, head: Head) -> EncoderLayer | DecoderLayer | None:
    """Return the layer of a head; None in a recurrent model."""
    path = model.attention[head.block, head.layer].hook_q.name.rpartition(".")[0].rpartition(".")[0]
    layer = model.get_submodule(path)
    return layer if isinstance(layer, EncoderLayer | DecoderLayer) else None


def _is_replaced(recorded: torch.Tensor, computed: torch.Tensor) -> bool:
    difference = (recorded - computed).abs().max().item()
    return not difference <= TOLERANCE * max(1.0, recorded.abs().max().item())


# ---- additive attention


def _additive(
    model: Seq2Seq, recorded: _Recorded, head: Head, row: int, column: int, answer: CellAnswer | None
) -> CellArithmetic:
    module = cast(SingleHeadAttention, model.attention[head.block, head.layer])
    query, keys = recorded.of(module, "hook_q")[0, 0, row], recorded.of(module, "hook_k")[0]
    values = recorded.of(module, "hook_v")[0]
    sums, location, scale = keys + query, None, 1.0
    if isinstance(module, LocationSensitiveAttention):
        location = recorded.of(module, "hook_location")[0, 0, row]  # (Tk, K)
        sums = sums + location
        scale = float(log_length(values, torch.ones(len(keys), dtype=torch.bool)))
    products = torch.zeros_like(sums)  # (Tk, K)
    if isinstance(module, AdditiveAttention):
        products = module.v.weight[0].double().cpu() * sums.tanh()
    scores, weights = (recorded.of(module, point)[0, 0, row] for point in ("hook_attn_scores", "hook_pattern"))
    masks = recorded.of(module, "hook_mask")[0, 0]
    visible = masks[row]
    weighted_sum = weights @ values
    output = recorded.of(module, "hook_z")[0, 0, row]
    lines: tuple[tuple[Line, torch.Tensor, torch.Tensor], ...] = (
        ("scores", scores, products.sum(dim=-1) * scale),
        ("weights", weights, masked_softmax(scores, visible)),
        ("output", output, weighted_sum),
    )
    return CellArithmetic(
        head=head,
        row=row,
        column=column,
        method="additive",
        query=query,
        key=keys[column],
        location=None if location is None else location[column],
        products=products[column],
        divisor=1 / scale,
        bias=None,
        scores=scores,
        visible=visible,
        weights=weights,
        values=values,
        weighted_sum=weighted_sum,
        rotated_back=False,
        output=output,
        head_addition=None,
        stream=(),
        answer=answer,
        replaced=tuple(line for line, *both in lines if _is_replaced(*both)),
    )


# ---- multi-head attention


def _multi_head(
    model: Seq2Seq, recorded: _Recorded, head: Head, row: int, column: int, answer: CellAnswer | None
) -> CellArithmetic:
    module, h = cast(MultiHeadAttention, model.attention[head.block, head.layer]), head.head - 1
    layer = _layer_of(model, head)
    if layer is None:
        raise InputError(f"head={head} is not in a layer with a residual stream")
    is_linear = isinstance(module, LinearAttention)
    query = recorded.of(module, "hook_q")[0, h, row]
    groups = (recorded.of(module, f"hook_{name}")[0] for name in "kv")  # of which heads may share one
    keys, values = (group[h * len(group) // module.num_heads] for group in groups)
    if is_linear:
        query, keys = F.elu(query) + 1, F.elu(keys) + 1
    shape = recorded.of(module, "hook_pattern").shape
    divisor = 1.0 if is_linear else math.sqrt(len(query))
    bias = recorded.row_of(module, "hook_bias", shape, h, row)
    mask = recorded.row_of(module, "hook_mask", shape, h, row)
    bias = None if bias is None else bias.double()
    visible = torch.ones(shape[-1], dtype=torch.bool) if mask is None else mask
    raw, weights, output = (
        recorded.of(module, point)[0, h, row] for point in ("hook_attn_scores", "hook_pattern", "hook_z")
    )
    scores = raw if bias is None else raw + bias
    weighted_sum = weights @ values
    rotation = _rotation_at(model, row, shape) if head.block != "cross" else None
    heads = recorded.of(module, "hook_z")[0, :, row].flatten()  # (D,): all heads side by side
    w_o, added = module.w_o.weight.double().cpu(), recorded.of(module, "hook_out")[0, row]
    bias_o = 0.0 if module.w_o.bias is None else module.w_o.bias.double().cpu()
    stream = _stream(layer, recorded, head, row)
    lines: tuple[tuple[Line, torch.Tensor, torch.Tensor], ...] = (
        ("scores", raw, keys @ query / divisor),
        ("weights", weights, _shares(scores, visible) if is_linear else masked_softmax(scores, visible)),
        (
            "output",
            output,
            weighted_sum if rotation is None else rotation.invert(weighted_sum[None, None, None])[0, 0, 0],
        ),
        ("sublayer", added, w_o @ heads + bias_o),
        *(("stream", step.after, computed) for step, computed in stream),
    )
    width = len(output)
    return CellArithmetic(
        head=head,
        row=row,
        column=column,
        method="linear" if is_linear else "dot product",
        query=query,
        key=keys[column],
        location=None,
        products=query * keys[column],
        divisor=divisor,
        bias=bias,
        scores=scores,
        visible=visible,
        weights=weights,
        values=values,
        weighted_sum=weighted_sum,
        rotated_back=rotation is not None,
        output=output,
        head_addition=w_o[:, h * width : (h + 1) * width] @ output,
        stream=tuple(step for step, _ in stream),
        answer=answer,
        replaced=tuple(dict.fromkeys(line for line, *both in lines if _is_replaced(*both))),
    )


def _shares(scores: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Return scores (Tk,) of linear attention divided by the sum of the visible ones."""
    scores = scores * visible
    return scores / scores.sum().clamp(min=EPSILON)


def _rotation_at(model: Seq2Seq, row: int, shape: torch.Size) -> Rotation | None:
    """Return the rotation of a query of self-attention by its position; None without VO-RoPE."""
    inv_freq = next(
        (each.inv_freq for each in model.modules() if isinstance(each, RelativeEncoding) and each.rotates_values), None
    )
    if inv_freq is None:
        return None
    past = shape[-1] - shape[-2]  # a decoder-only model's queries come after its source
    return Rotation.at(torch.tensor([[past + row]]), inv_freq.double().cpu())


def _stream(
    layer: EncoderLayer | DecoderLayer, recorded: _Recorded, head: Head, row: int
) -> list[tuple[StreamStep, torch.Tensor]]:
    """Return the head's sublayer and later ones, and what each computes from its stream and its output."""
    has_cross = isinstance(layer, DecoderLayer) and layer.cross_attention is not None
    steps: list[tuple[str, str, nn.Module, str, nn.Module]] = []
    if isinstance(layer, EncoderLayer):
        steps.append(("attention", "hook_resid_pre", layer.self_attention, "hook_resid_mid", layer.norm_attention))
    else:
        steps.append(("attention", "hook_resid_pre", layer.self_attention, "hook_resid_mid", layer.norm_self))
        if layer.cross_attention is not None:
            name = "attention" if head.block == "cross" else "cross-attention"
            steps.append((name, "hook_resid_mid", layer.cross_attention, "hook_resid_cross", layer.norm_cross))
    last = "hook_resid_cross" if has_cross else "hook_resid_mid"
    steps.append(("feed-forward", last, layer.feed_forward, "hook_resid_post", layer.norm_feed_forward))
    found = []
    for name, before_point, sublayer, after_point, norm in steps[head.block == "cross" :]:
        before, after = (recorded.of(layer, point)[0, row] for point in (before_point, after_point))
        added = recorded.of(sublayer, "hook_out")[0, row]
        computed = before + added
        if not layer.is_pre_norm:
            computed = copy.deepcopy(norm).cpu().double()(computed)
        found.append((StreamStep(name, before, added, after), computed))
    return found
