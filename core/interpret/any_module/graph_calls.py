"""The graph of a forward pass: its embeddings, products and attentions, and which of them every path goes through."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

Node = Any  # of autograd: an object with ``next_functions``, its inputs
UNCHANGED = ("dropout", "contiguous", "view", "reshape", "flatten", "transpose", "permute", "squeeze", "unsqueeze")


@dataclass(frozen=True, eq=False)
class GraphCall:
    """A call in a forward pass.

    Attributes:
        kind: a product with a matrix of weights; a convolution; whole attention; or the softmax of attention, whose
            result is its weights.
        result: of the call.
        sizes: of a matrix or convolution, numbers of inputs and outputs; of attention, of queries and keys.
        is_of_matrix: of a matrix, whether its input is the unchanged output of the matrix called before it.
    """

    kind: Literal["matrix", "convolution", "attention", "softmax"]
    result: torch.Tensor
    sizes: tuple[int, int]
    is_of_matrix: bool = False


class GraphCalls(TorchFunctionMode):
    """Records the calls of PyTorch functions inside its ``with`` block whose paths are of interest.

    Attributes:
        embedded: the ids and the result of every embedding.
        calls: matrices, convolutions and attentions, in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedded: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.calls: list[GraphCall] = []
        self._outputs: dict[int, torch.Tensor] = {}  # of the last matrix, unchanged, by id

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call a function, and remember it if it is of interest."""
        given = kwargs or {}
        result = func(*args, **given)
        name = getattr(func, "__name__", "")
        if name == "embedding":
            result = self._embedding(args[0] if args else given["input"], result)
        elif name == "softmax" and result.ndim > 2:
            self._add("softmax", result, (result.shape[-2], result.shape[-1]))
        elif name == "scaled_dot_product_attention":
            query, key = (args[at] if at < len(args) else given[of] for at, of in enumerate(("query", "key")))
            self._add("attention", result, (query.shape[-2], key.shape[-2]))
        elif name == "multi_head_attention_forward":
            self._add("attention", result[0], (args[0].shape[0], args[1].shape[0]))
        elif name == "linear":
            self._matrix(
                args[0] if args else given["input"], (args[1] if len(args) > 1 else given["weight"]).mT, result
            )
        elif name in ("matmul", "__matmul__") and args[1].ndim == 2 and args[1].is_leaf and args[1].requires_grad:
            self._matrix(args[0], args[1], result)
        elif name == "conv1d":
            weight = args[1] if len(args) > 1 else given["weight"]
            self._add("convolution", result, (weight.shape[1], weight.shape[0]))
        elif name == "addmm":
            self._matrix(args[1], args[2], result)
        elif name in UNCHANGED and args and id(args[0]) in self._outputs:
            self._outputs[id(result)] = result
        return result

    def _embedding(self, ids: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and not result.requires_grad:  # of a frozen table, at which paths begin all the same
            result = result.requires_grad_().clone()
        self.embedded.append((ids, result))
        return result

    def _add(
        self, kind: Literal["convolution", "attention", "softmax"], result: torch.Tensor, sizes: tuple[int, int]
    ) -> None:
        self.calls.append(GraphCall(kind, result, sizes))

    def _matrix(self, argument: torch.Tensor, weight: torch.Tensor, result: torch.Tensor) -> None:
        sizes = weight.shape[-2], weight.shape[-1]
        self.calls.append(GraphCall("matrix", result, sizes, id(argument) in self._outputs))
        self._outputs = {id(result): result}

    def embedding_of(self, ids: torch.Tensor) -> torch.Tensor | None:
        """Return the result of the embedding of ids (B, T) int64, or of their transpose; None if there was none."""
        for seen, result in self.embedded:
            if seen.ndim == 2 and any(torch.equal(seen, each) for each in (ids, ids.mT) if each.shape == seen.shape):
                return result
        return None


class Paths:
    """The paths from an embedding to the logits.

    Args:
        logits: differentiable.
        start: the embedding's result.
    """

    def __init__(self, logits: torch.Tensor, start: torch.Tensor) -> None:
        self._end, self._start = logits.grad_fn, start.grad_fn
        self._readers: dict[Node, list[Node]] = {}
        waiting, seen = [self._end], {self._end}
        while waiting:
            node = waiting.pop()
            for each in _inputs(node):
                self._readers.setdefault(each, []).append(node)
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)

    @property
    def exist(self) -> bool:
        """Whether there is a path at all."""
        return self._start in self._readers

    def all_pass(self, call: GraphCall) -> bool:
        """Whether every path goes through the result of a call, or through what is made of attention weights."""
        if call.result.grad_fn not in self._readers:
            return False
        return not self._reach_without(set(self._taken(call)))

    def _taken(self, call: GraphCall) -> Iterator[Node]:
        """Yield the nodes of a call; of a softmax, those that multiply its weights with the values."""
        waiting = [call.result.grad_fn]
        while waiting:
            node = waiting.pop()
            if call.kind != "softmax" or len(_inputs(node)) > 1 or node not in self._readers:
                yield node
            else:
                waiting += self._readers[node]

    def _reach_without(self, removed: set[Node]) -> bool:
        if self._start in removed:
            return False
        waiting, seen = [self._start], {self._start}
        while waiting:
            node = waiting.pop()
            if node is self._end:
                return True
            for each in self._readers.get(node, []):
                if each not in removed and each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return False


def _inputs(node: Node) -> list[Node]:
    return [each for each, _ in node.next_functions if each is not None]
