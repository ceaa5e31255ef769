"""The highest memory of a computation, measured on meta tensors: these have shapes but no data, so it takes none."""

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MATRIX_PRODUCTS = {
    F.linear,
    F.scaled_dot_product_attention,
    torch.matmul,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.bmm,
    torch.Tensor.bmm,
}


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of tensors allocated inside the block, until nothing refers to them.

    Attributes:
        highest: maximum bytes of such tensors that existed at the same time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.highest = self._current = 0
        self._counted: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the check takes longer than counting

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.index.Tensor:
            args = (args[0], [index for mask in args[1] for index in _positions(mask)])
        inputs = {each.untyped_storage()._cdata for each in tree_leaves((args, kwargs)) if torch.is_tensor(each)}
        output = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            if torch.is_tensor(tensor) and tensor.untyped_storage()._cdata not in inputs:  # neither a view nor in place
                self._count(tensor.untyped_storage())
        return output

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._counted:
            self._counted.add(storage._cdata)
            self._current += storage.nbytes()
            self.highest = max(self.highest, self._current)
            weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())

    def _forget(self, storage: int, size: int) -> None:
        self._counted.discard(storage)
        self._current -= size


class AsOnCPU(TorchFunctionMode):
    """Compute on meta tensors with the kernel for attention and, on request, the dtypes that a CPU would use.

    Args:
        bfloat16: compute matrix products in bfloat16, as torch.autocast does, which does not know meta tensors.
    """

    def __init__(self, *, bfloat16: bool = False) -> None:
        super().__init__()
        self.bfloat16 = bfloat16
        self._weights: dict[int, torch.Tensor] = {}  # autocast also casts a weight once

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.bfloat16 and func in _MATRIX_PRODUCTS:
            args = [self._cast(each) if torch.is_tensor(each) else each for each in args]
        if func is F.scaled_dot_product_attention and args[0].device.type == "meta":
            added = (kwargs or {}).get("attn_mask")
            if added is None or not added.requires_grad:  # a trained bias needs weights, which no fused kernel has
                return _fused_attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != torch.float32:
            return tensor
        if not isinstance(tensor, torch.nn.Parameter):
            return tensor.to(torch.bfloat16)
        if id(tensor) not in self._weights:
            self._weights[id(tensor)] = tensor.to(torch.bfloat16)
        return self._weights[id(tensor)]


def _fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, attn_mask: torch.Tensor | None
) -> torch.Tensor:
    """Attend with the CPU's kernel, which stores no weights; on the meta device PyTorch would choose one that does."""
    added = attn_mask
    if added is not None and added.dtype == torch.bool:
        added = torch.empty_like(added, dtype=query.dtype)  # as the CPU does before it calls the kernel
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, attn_mask=added)[0]


def _positions(index: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Return indices (N,) int64 for each dimension of a mask that is True everywhere; other indices unchanged.

    How many elements of a mask are True depends on its data, which a meta tensor does not have.
    """
    if index is None or index.dtype != torch.bool or index.device.type != "meta":
        return [index]
    return [torch.empty(index.numel(), dtype=torch.int64, device=index.device) for _ in range(index.ndim)]
