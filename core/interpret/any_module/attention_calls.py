"""Calls of attention modules: recorded at the lab's hook points, or by hooks on PyTorch's ``nn.MultiheadAttention``."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from core.models import AttentionMaps, Seq2Seq, forward_with_attention
from core.models.additive_attention import SingleHeadAttention
from core.models.attention import MultiHeadAttention
from core.models.hooks import Hook, hooks
from core.models.seq2seq import Block

_ARGUMENTS = inspect.signature(nn.MultiheadAttention.forward)


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention module.

    Attributes:
        name: path of the module.
        block: "encoder", "decoder" or "cross"; None if the numbers of queries and keys fit none of these.
        module: multi-head or additive attention; None if only the call of softmax was seen.
        query: (B, H, Tq, K) float, or (B, D) for additive attention; None without a module, as key and value.
        key: (B, H, Tk, K) float; H is 1 and K is D for additive attention.
        value: (B, H, Tk, K) float, likewise.
        mask: bool, broadcastable to the weights, True = may attend; None for all.
        bias: float, added to the scores, or None.
        weights: (B, H, Tq, Tk) float, as the module reports them.
        output: (B, H, Tq, K) float, each head's output before the output projection; None if it cannot be read.
        scores: (B, H, Tq, Tk) float, products of queries and keys before any scaling; None if they were not recorded.
        d_k: size of a query in these products.
        applied: (B, H, Tq, Tk) float, what multiplies the values; None if nothing but the weights was seen.
    """

    name: str
    block: Block | None
    module: MultiHeadAttention | SingleHeadAttention | nn.MultiheadAttention | None
    query: torch.Tensor | None
    key: torch.Tensor | None
    value: torch.Tensor | None
    mask: torch.Tensor | None
    bias: torch.Tensor | None
    weights: torch.Tensor
    output: torch.Tensor | None
    scores: torch.Tensor | None = None
    d_k: int = 1
    applied: torch.Tensor | None = None

    @property
    def is_finite(self) -> bool:
        """Whether all weights are finite: PyTorch returns NaN for a row with nothing to attend to."""
        return bool(self.weights.isfinite().all())

    @property
    def products(self) -> torch.Tensor:
        """The products of queries and keys before any scaling, (B, H, Tq, Tk) float."""
        if self.scores is not None or self.query is None or self.key is None:
            return torch.empty(0) if self.scores is None else self.scores
        return self.query @ self.key.transpose(-2, -1)

    @property
    def visible(self) -> torch.Tensor:
        """The mask, expanded to the shape of the weights, bool."""
        if self.mask is None:
            return torch.ones_like(self.weights, dtype=torch.bool)
        return self.mask.expand_as(self.weights)


def blocks_by_shape(num_src: int, num_tgt: int | None) -> dict[tuple[int, int], Block]:
    """Return the blocks by the numbers of their queries and keys; those of equal shape are the last one's.

    Args:
        num_src, num_tgt: tokens of source and decoder input; None for a language model, all of whose tokens are
            ``num_src``.
    """
    if num_tgt is None:
        return {(num_src, num_src): "decoder"}
    return {
        (num_src, num_src): "encoder",
        (num_tgt, num_tgt): "decoder",
        (1, num_src): "cross",  # a step of a recurrent decoder
        (num_tgt, num_src): "cross",
    }


@torch.no_grad()
def record_lab_attention(
    model: Seq2Seq, src: torch.Tensor, tgt_in: torch.Tensor
) -> tuple[AttentionMaps, list[AttentionCall]]:
    """Run pairs through one of the lab's models; return its attention maps and every call of an attention module."""
    _, maps = forward_with_attention(model, src, tgt_in)
    recorders = [_CallRecorder(block, module) for (block, _), module in model.attention.items()]
    with hooks({name: hook for recorder in recorders for name, hook in recorder.hooks().items()}):
        memory = model.encode(src)
        for recorder in recorders:
            if recorder.block != "encoder":
                recorder.calls.clear()  # a decoder-only model has read the source, which is in no map
        model.decode(tgt_in, memory)
    return maps, [call for recorder in recorders for call in recorder.calls]


@torch.no_grad()
def record_torch_attention(
    model: nn.Module, run: Callable[[], object], *, src_length: int, tgt_length: int | None
) -> list[AttentionCall]:
    """Return every call of an ``nn.MultiheadAttention`` of a model while ``run`` calls it.

    The modules return the weights of each head, whatever the model requests; their outputs are unchanged.

    Args:
        src_length, tgt_length: see ``blocks_by_shape``; they must differ, to distinguish the blocks.
    """
    blocks = blocks_by_shape(src_length, tgt_length)
    calls: list[AttentionCall] = []

    def ask(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        given = dict(_ARGUMENTS.bind(module, *args, **kwargs).arguments)
        del given["self"]
        return (), given | {"need_weights": True, "average_attn_weights": False}

    def record(name: str, module: nn.MultiheadAttention, _: tuple, given: dict[str, Any], output: tuple) -> None:
        calls.append(_torch_call(name, module, given, output[1], blocks))

    handles = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, nn.MultiheadAttention) and type(module).forward is nn.MultiheadAttention.forward:
                handles.append(module.register_forward_pre_hook(ask, with_kwargs=True))
                handles.append(module.register_forward_hook(partial(record, name), with_kwargs=True))
        run()
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _torch_call(
    name: str,
    module: nn.MultiheadAttention,
    given: dict[str, Any],
    weights: torch.Tensor,
    blocks: dict[tuple[int, int], Block],
) -> AttentionCall:
    """Return the call of a PyTorch module, with queries, keys and values projected in the same way."""
    weights = weights if weights.ndim == 4 else weights[None]
    num_queries, num_keys = weights.shape[-2:]
    inputs = [given[each] for each in ("query", "key", "value")]
    inputs = [each if each.ndim == 3 else each[:, None] for each in inputs]  # unbatched: (T, D)
    inputs = [each if module.batch_first and given["query"].ndim == 3 else each.transpose(0, 1) for each in inputs]
    projections = (
        [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
        if module.in_proj_weight is None
        else list(module.in_proj_weight.chunk(3))
    )
    biases = [None] * 3 if module.in_proj_bias is None else list(module.in_proj_bias.chunk(3))
    query, key, value = (
        nn.functional.linear(each, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for each, weight, bias in zip(inputs, projections, biases, strict=True)
    )
    added = _added_to_scores(given.get("attn_mask"), given.get("key_padding_mask"), module.num_heads)
    mask = None if added is None else added > torch.finfo(added.dtype).min / 2
    return AttentionCall(
        name=name,
        block=blocks.get((num_queries, num_keys)),
        module=module,
        query=query,
        key=key,
        value=value,
        mask=mask,
        bias=None if added is None or mask is None else added.masked_fill(~mask, 0.0),
        weights=weights,
        output=None,
        d_k=key.shape[-1],
    )


def _added_to_scores(
    attn_mask: torch.Tensor | None, key_padding_mask: torch.Tensor | None, num_heads: int
) -> torch.Tensor | None:
    """Return PyTorch's masks as a bias on the scores, broadcastable to (B, H, Tq, Tk); None without masks."""
    scores = None
    if attn_mask is not None:
        scores = _as_scores(attn_mask)
        scores = scores.unflatten(0, (-1, num_heads)) if scores.ndim == 3 else scores
    if key_padding_mask is not None:
        padding = _as_scores(key_padding_mask).view(-1, 1, 1, key_padding_mask.shape[-1])
        scores = padding if scores is None else scores + padding
    return scores


def _as_scores(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of PyTorch as a bias on the scores; bool masks are True where attention is not allowed."""
    if mask.dtype != torch.bool:
        return mask.float()
    return torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -torch.inf)


class _CallRecorder:
    """Records the calls of one attention module at its hook points."""

    def __init__(self, block: Block, module: MultiHeadAttention | SingleHeadAttention) -> None:
        self.block: Block = block
        self.module = module
        self.calls: list[AttentionCall] = []
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._latest: dict[str, torch.Tensor] = {}

    def hooks(self) -> dict[str, Hook]:
        """Return the hooks of this module by name."""
        by_point: dict[str, Hook] = {"hook_k": self._keys.append, "hook_v": self._values.append, "hook_z": self._finish}
        for name in ("q", "mask", "bias", "pattern"):
            remember: Callable[[torch.Tensor], None] = partial(self._latest.__setitem__, name)
            by_point[f"hook_{name}"] = remember
        points = vars(self.module)  # additive attention has no bias
        return {points[point].name: hook for point, hook in by_point.items() if point in points}

    def _finish(self, z: torch.Tensor) -> None:
        weights = self._latest.pop("pattern")
        key, value = (_last(parts, weights.shape[-1]) for parts in (self._keys, self._values))
        group = weights.shape[1] // key.shape[1]  # heads that share keys and values
        self.calls.append(
            AttentionCall(
                name=self.module.hook_pattern.name.removesuffix(".hook_pattern"),
                block=self.block,
                module=self.module,
                query=self._latest["q"],
                key=key.repeat_interleave(group, dim=1),
                value=value.repeat_interleave(group, dim=1),
                mask=self._latest.pop("mask", None),
                bias=self._latest.pop("bias", None),
                weights=weights,
                output=z,
                d_k=key.shape[-1],
            )
        )


def _last(parts: list[torch.Tensor], length: int) -> torch.Tensor:
    """Concatenate the keys or values of several calls; return the last ``length``, which the queries attend to."""
    if parts[-1].ndim == 3:  # additive attention: (B, S, D)
        return parts[-1][:, None]
    return torch.cat(parts, dim=2)[:, :, -length:]
