"""Products with weights, recorded while the reader's module runs, so that its projections are known by what they do."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

PRODUCTS = ("linear", "matmul", "__matmul__", "mm", "bmm", "einsum")


@dataclass(frozen=True)
class Product:
    """What a product of activations with weights read and returned."""

    activations: torch.Tensor
    result: torch.Tensor

    def reads(self, tensor: torch.Tensor) -> bool:
        """Whether the activations are the numbers of a tensor, in its shape or flattened."""
        return self.activations.numel() == tensor.numel() and torch.equal(self.activations.flatten(), tensor.flatten())


class Products(TorchFunctionMode):
    """Records products of activations with weights inside its ``with`` block.

    A product of two tensors that both depend on the batch, such as queries and keys, is not recorded.

    Args:
        batch: number of sequences, which divides the first axis of what depends on the batch.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.calls: list[Product] = []
        self._batch = batch

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call a function, and remember it if it multiplies by weights."""
        keywords = kwargs or {}
        result = func(*args, **keywords)
        if getattr(func, "__name__", "") in PRODUCTS and isinstance(result, torch.Tensor):
            equation = args[0] if args and isinstance(args[0], str) else ""
            operands = [each for each in (*args, *keywords.values()) if isinstance(each, torch.Tensor)]
            if len(operands) >= 2 and self._is_weight(operands[-1 if equation else 1]):
                read = _averaged(equation, operands) if equation and len(operands) > 2 else operands[0]
                self.calls.append(Product(read.detach().clone(), result.detach().clone()))
        return result

    def _is_weight(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, torch.nn.Parameter) or tensor.ndim <= 2 or tensor.shape[0] % self._batch != 0


def _averaged(equation: str, operands: list[torch.Tensor]) -> torch.Tensor:
    """Return what a sum over three tensors gives before the last of them, the weights: (B, T, H, K) float."""
    if "->" not in equation or "." in equation:  # its axes have no names
        return operands[0]
    inputs, _, output = equation.replace(" ", "").partition("->")
    *read, weights = inputs.split(",")
    kept = [each for each in output if each not in weights] + [each for each in weights if each not in output]
    return torch.einsum(f"{','.join(read)}->{''.join(kept)}", *operands[:-1])


def by_token(tensor: torch.Tensor, batch: int, length: int, num_heads: int) -> torch.Tensor | None:
    """Return the vectors of tokens (B, T, W) from one of the shapes that products have; None from another.

    Args:
        tensor: (B, T, W), (B·T, W), (B, T, H, K) or (B, H, T, K) float.
        batch, length, num_heads: B, T and H.
    """
    shape = tuple(tensor.shape)
    if shape[:2] == (batch, length):
        return tensor.flatten(2)
    if len(shape) == 2 and shape[0] == batch * length:
        return tensor.view(batch, length, -1)
    if len(shape) == 4 and shape[:3] == (batch, num_heads, length):
        return tensor.transpose(1, 2).flatten(2)
    return None
