"""Run a user's model for a while, in evaluation mode or another precision, and leave it as it was."""

import random
import sys
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from core.storage.errors import InputError
from core.storage.interrupts import interrupts_held

SHARDED = ("FullyShardedDataParallel", "FSDP")  # how the names of such classes begin
CONTAINERS = dict, OrderedDict, defaultdict, list, set, deque  # whose contents are restored; others may refuse that
_TABLES_OF_TORCH = vars(nn.Module()).keys() - {"_parameters", "_buffers"}  # of hooks and submodules, a dozen a module
NORMS, EMBEDDINGS = ("batch_norm", "instance_norm"), ("embedding", "embedding_bag")  # functions that may write


def check_not_sharded(model: nn.Module | None) -> None:
    """Raise InputError for a model that is sharded by FSDP: it is called by all processes, and cannot be converted."""
    if model is not None and any(type(each).__name__.startswith(SHARDED) for each in model.modules()):
        raise InputError("model is sharded by FSDP: all processes compute it together, so one alone cannot examine it")


@contextmanager
def modules_kept(model: nn.Module | None) -> Iterator[None]:
    """Restore a model's parameters, buffers, attributes and modes after the block, their values included."""
    modules = list(model.modules()) if model is not None else []
    own = [vars(each) for each in modules]
    kept = [(each, each.copy()) for each in own]
    kept += _with_copies(value for each in own for name, value in each.items() if name not in _TABLES_OF_TORCH)
    tensors = [(each, each.data, each.grad) for each in (model.parameters() if model is not None else ())]
    held = [each for _, before in kept for each in _values(before) if isinstance(each, torch.Tensor)]
    writes = _Writes([*held, *(each.grad for each in held if each.is_leaf and each.grad is not None)])
    try:
        with writes:
            yield
    finally:
        writes.undo()
        for container, before in kept:
            container.clear()
            if isinstance(container, dict | set):
                container.update(before)
            else:
                container.extend(before)
        for parameter, data, grad in tensors:
            parameter.grad = None
            parameter.data = data
            parameter.grad = grad


def _with_copies(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return containers among values, and those that they contain at any depth, each with a copy of what it holds."""
    found, waiting = dict[int, tuple[Any, Any]](), [value for value in values if type(value) in CONTAINERS]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each, each.copy()
            waiting += [value for value in _values(each) if type(value) in CONTAINERS]
    return list(found.values())


def _values(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


class _Writes(TorchFunctionMode):
    """Copies memory of tensors when a function first writes into it: a second copy of all weights may not fit."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._versions = [(each, each._version) for each in dict.fromkeys(tensors) if not each.is_inference()]
        stored = (storage for each, _ in self._versions if (storage := _storage(each)) is not None)
        self._unwritten = {each._cdata: each for each in stored}
        self._written: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for each in _written_arguments(getattr(func, "__name__", ""), args, kwargs):
            storage = _storage(each)
            if storage is not None and storage._cdata in self._unwritten:
                kept = self._unwritten.pop(storage._cdata)
                self._written.append((kept, kept.clone()))
        return func(*args, **kwargs)

    def undo(self) -> None:
        """Give the tensors their values again, and their versions, which a backward pass under way compares."""
        for storage, values in self._written:
            storage.copy_(values)
        for tensor, version in self._versions:
            if tensor._version != version:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # a sparse tensor has none
        return None


def _written_arguments(name: str, args: tuple, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that a function of PyTorch may write into."""
    if name in NORMS or (name in EMBEDDINGS and (kwargs.get("max_norm") or args[3:4] not in ((), (None,)))):
        given = [*args, *kwargs.values()]  # running averages, or rows that are too long
    elif name.startswith("__i") or name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
        first = args[0] if args else None
        given = [*first] if isinstance(first, list | tuple) else [first]
    else:
        out = kwargs.get("out")
        given = [*out] if isinstance(out, list | tuple) else [out]
    return [each for each in given if isinstance(each, torch.Tensor)]


@contextmanager
def random_states_kept(devices: list[int]) -> Iterator[None]:
    """Restore the random generators of PyTorch, Python and NumPy after the block.

    Args:
        devices: indices of the GPUs whose generators are restored too.
    """
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def examined(model: nn.Module | None) -> Iterator[None]:
    """Put a model into evaluation mode inside the block; its modes and the random generators are restored.

    PyTorch's fused encoder layers are turned off: they remove PAD, and the decoder's mask would no longer fit. Models
    that ``torch.compile`` has compiled run as they are written, so that their calls are seen. Ctrl+C waits for the end
    of the block: in the middle of restoring, it would leave the model changed.
    """
    gpus = sorted({each.device.index for each in model.parameters() if each.is_cuda}) if model is not None else []
    with interrupts_held(), random_states_kept(gpus), modules_kept(model), _AS_WRITTEN:
        if model is not None:
            model.eval()
        yield


class _AsWritten:
    """Turns off what replaces modules by fused ones, from the first of the examinations that overlap to the last one.

    PyTorch's switches are those of the whole process; a page examines models of several visitors at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = 0
        self._switches = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1
            if self._entered == 1:
                is_fused = torch.backends.mha.get_fastpath_enabled()
                self._switches.callback(torch.backends.mha.set_fastpath_enabled, is_fused)
                torch.backends.mha.set_fastpath_enabled(False)
                if "torch._dynamo" in sys.modules:  # which takes a second to import
                    self._switches.enter_context(torch.compiler.set_stance("force_eager"))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered:
                self._switches.close()


_AS_WRITTEN = _AsWritten()


@contextmanager
def computing_in(dtype: torch.dtype | None, model: nn.Module | None) -> Iterator[None]:
    """Compute in a precision inside the block, without autocast.

    Args:
        dtype: of parameters, buffers and new tensors; None leaves it as it is.
        model: restored after the block; its parameters remain the same objects.
    """
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(modules_kept(model))
        if dtype is not None and model is not None:
            _convert(model, dtype)
            if dtype != torch.get_default_dtype():
                stack.enter_context(_NewTensorsIn(dtype))
        yield


class _NewTensorsIn(TorchDispatchMode):
    """Gives new tensors another precision than the default; ``set_default_dtype`` would change that of all threads."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # examined models are not compiled, and the check takes longer than most operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor) or result.dtype != torch.get_default_dtype():
            return result
        from_data = func is torch.ops.aten.lift_fresh.default  # torch.tensor(...)
        is_new = from_data or not ("dtype" in kwargs or any(map(_decides_precision, args)))
        return result.to(self.dtype) if is_new else result


def _decides_precision(argument: Any) -> bool:
    """Whether an argument gives its precision to the result; numbers, and tensors without dimensions, do not."""
    return isinstance(argument, torch.Tensor) and argument.is_floating_point() and argument.dim() > 0


def _convert(model: nn.Module, dtype: torch.dtype) -> None:
    for parameter in model.parameters():
        parameter.grad = None
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)
