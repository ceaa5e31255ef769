"""Calls of PyTorch functions while a model runs, seen from outside: softmax, products of queries and keys, dropout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from core.interpret.any_module.attention_calls import AttentionCall, blocks_by_shape

JOINING = ("cat", "concat", "concatenate")
PRODUCTS = ("matmul", "bmm", "einsum")
REARRANGING = {  # results have the numbers of the first argument, in another order or number
    *("view", "reshape", "transpose", "permute", "swapaxes", "movedim", "unflatten", "flatten", "unsqueeze", "squeeze"),
    *("T", "mT", "H", "mH"),
    *("chunk", "split", "unbind", "__getitem__", "contiguous", "clone", "to", "float", "double", "add"),
    *("repeat", "repeat_interleave", "expand", "expand_as", "broadcast_to"),  # keys that several heads share
}


@dataclass(frozen=True)
class _Product:
    """Scores (…, Tq, Tk) of queries and keys of size ``d_k``, which were multiplied by ``factor`` before."""

    scores: torch.Tensor
    d_k: int
    factor: float


def _name_of(func: Any) -> str:
    """Return the name of a function, or of the property that it gets, as ``mT``."""
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", "") if name == "__get__" else name


class FunctionCalls(TorchFunctionMode):
    """Records calls of PyTorch functions inside its ``with`` block, whoever makes them.

    Attributes:
        attention: calls of softmax over scores of queries and keys, and of ``scaled_dot_product_attention``.
        dropout: the active calls of dropout, as they would be written.
        dtypes: the floating-point types of the results; where gradients are computed, only of results that have one.
        others: calls of softmax whose weights have the shape of no block, as they would be written.

    Args:
        src: (B, S) int64.
        tgt_in: (B, T) int64; None for a language model, whose ids are ``src``.
    """

    def __init__(self, src: torch.Tensor, tgt_in: torch.Tensor | None) -> None:
        super().__init__()
        self.attention: list[AttentionCall] = []
        self.dropout: list[str] = []
        self.dtypes: set[torch.dtype] = set()
        self.others: list[str] = []
        self._batch = len(src)
        self._blocks = blocks_by_shape(src.shape[1], None if tgt_in is None else tgt_in.shape[1])
        self._factors: dict[int, tuple[torch.Tensor, float]] = {}  # since a linear layer; keeps the tensor, for its id
        self._products: list[_Product] = []
        self._weights: dict[int, tuple[torch.Tensor, int]] = {}  # by id, with the index of their call of attention

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call a function, and remember what it did."""
        given = kwargs or {}
        result = func(*args, **given)
        name = _name_of(func)
        self._note_type(result)
        if name == "softmax":
            self._softmax(args[0] if args else given["input"], result)
        elif name == "scaled_dot_product_attention":
            self._fused(*args, **given)
        elif name == "dropout" and isinstance(result, torch.Tensor):
            self._dropout(*args[1:], **given)
        else:
            self._follow(name, args, given, result)
            self._follow_weights(name, args, result)
        return result

    def _follow(self, name: str, args: tuple, given: dict[str, Any], result: Any) -> None:
        """Follow queries, keys and scores from the linear layers on."""
        if name in ("linear", "addmm"):
            self._remember(result, 1.0)
        elif name in PRODUCTS:
            self._product(args, result)
        elif name in ("mul", "mul_", "div", "div_"):
            self._scaled(args, result, divides=name.startswith("div"))
        elif name in JOINING:
            self._joined(args[0] if args else given["tensors"], result)
        elif name in REARRANGING and args and id(args[0]) in self._factors:
            for each in result if isinstance(result, tuple | list) else (result,):
                self._remember(each, self._factors[id(args[0])][1])

    def _follow_weights(self, name: str, args: tuple, result: Any) -> None:
        """Follow weights from their softmax to the product with the values: a mask may come between."""
        for given in args:
            weights, at = self._weights.get(id(given), (None, 0))
            if weights is None:
                continue
            call = self.attention[at]
            if name in PRODUCTS:
                self.attention[at] = replace(call, applied=weights.detach().reshape(call.weights.shape))
            elif isinstance(result, torch.Tensor) and result.shape == weights.shape:
                self._weights[id(result)] = (result, at)

    def _note_type(self, result: Any) -> None:
        is_float = isinstance(result, torch.Tensor) and result.is_floating_point()
        if is_float and (result.requires_grad or not torch.is_grad_enabled()):
            self.dtypes.add(result.dtype)

    def _remember(self, tensor: Any, factor: float) -> None:
        self._factors[id(tensor)] = (tensor, factor)

    def _joined(self, parts: Sequence[torch.Tensor], result: torch.Tensor) -> None:
        """Remember tensors of one factor as one; a cache joins the keys to none at first."""
        factors = {self._factors.get(id(each), (each, None))[1] for each in parts if each.numel()}
        factor = factors.pop() if len(factors) == 1 else None
        if factor is not None:
            self._remember(result, factor)

    def _scaled(self, args: tuple, result: Any, *, divides: bool) -> None:
        tensors = [each for each in args if isinstance(each, torch.Tensor) and each.numel() > 1]
        scalars = [each for each in args[:2] if not any(each is tensor for tensor in tensors)]
        if len(tensors) == len(scalars) == 1 and id(tensors[0]) in self._factors:
            scalar = float(scalars[0])
            self._remember(result, self._factors[id(tensors[0])][1] * (1 / scalar if divides else scalar))

    def _product(self, args: tuple, result: torch.Tensor) -> None:
        equation, *operands = args if isinstance(args[0], str) else ("", *args)
        if len(operands) != 2 or not all(id(each) in self._factors for each in operands):
            return
        d_k = operands[0].shape[-1]
        if equation:
            one, other, kept = equation.replace(" ", "").replace("->", ",").split(",")
            summed = [letter for letter in one if letter in other and letter not in kept]
            d_k = operands[0].shape[one.index(summed[0])] if len(summed) == 1 and "." not in one else 0
        factor = self._factors[id(operands[0])][1] * self._factors[id(operands[1])][1]
        if d_k:
            self._products.append(_Product(result.detach(), d_k, factor))

    def _softmax(self, scores: torch.Tensor, weights: torch.Tensor) -> None:
        products = [each for each in self._products if each.scores.shape == scores.shape]
        self._add("softmax", weights, products[-1] if products else None)

    def _fused(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **_: Any,
    ) -> None:
        if dropout_p:
            self.dropout.append(f"scaled_dot_product_attention(dropout_p={dropout_p:g})")
        factors = [self._factors[id(each)][1] for each in (query, key) if id(each) in self._factors]
        if key.shape[1] != query.shape[1]:  # shared by several heads
            key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        raw = query @ key.mT
        scores = raw * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        if attn_mask is not None:
            is_bool = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -torch.inf) if is_bool else scores + attn_mask
        product = None
        if len(factors) == 2:
            product = _Product(raw.detach(), query.shape[-1], factors[0] * factors[1])
        is_empty = scores.isneginf().all(dim=-1, keepdim=True)  # a query without keys, for which PyTorch returns 0
        self._add("scaled_dot_product_attention", scores.softmax(dim=-1).masked_fill(is_empty, 0.0), product)

    def _dropout(self, p: float = 0.5, training: bool = True, inplace: bool = False, **_: Any) -> None:
        if training and p:
            self.dropout.append(f"dropout(p={p:g}, training=True)")

    def _add(self, name: str, weights: torch.Tensor, product: _Product | None) -> None:
        """Add a call if its weights have the shape of attention on this batch."""
        seen, weights = weights, weights.detach()
        if weights.ndim == 3 and weights.shape[-1] == 1:
            weights = weights.mT  # (B, S, 1), normalized over the source
        if weights.ndim == 2:
            weights = weights[:, None]
        block = self._blocks.get((weights.shape[-2], weights.shape[-1])) if weights.ndim > 2 else None
        if block is None or (weights.ndim == 3 and len(weights) % self._batch):
            self.others.append(f"{name} {tuple(weights.shape)}")
            return
        weights = weights.reshape(self._batch, -1, *weights.shape[-2:])
        self._weights[id(seen)] = (seen, len(self.attention))
        self.attention.append(
            AttentionCall(
                name=f"{name} {len(self.attention) + 1}",
                block=block,
                module=None,
                query=None,
                key=None,
                value=None,
                mask=weights > 0,
                bias=None,
                weights=weights,
                output=None,
                scores=None if product is None else (product.scores / product.factor).reshape(weights.shape),
                d_k=1 if product is None else product.d_k,
            )
        )
