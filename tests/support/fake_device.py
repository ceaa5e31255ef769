"""An imitated GPU: tensors that report the device ``cuda:0`` and refuse to be combined with CPU tensors.

All computation happens on the CPU. On a machine without a GPU this finds the errors that a GPU would raise: a tensor
created on the CPU by accident, or one converted to NumPy without being moved first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


class FakeCudaTensor(torch.Tensor):
    """A tensor that reports ``CUDA``; its values are in ``on_cpu``."""

    @staticmethod
    def __new__(cls, on_cpu: torch.Tensor) -> "FakeCudaTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            on_cpu.shape,
            strides=on_cpu.stride(),
            dtype=on_cpu.dtype,
            device="meta",
            requires_grad=on_cpu.requires_grad,
        )
        tensor.on_cpu = on_cpu
        return tensor

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        with FakeCudaMode():
            return function(*args, **(kwargs or {}))

    @property
    def device(self) -> torch.device:
        return CUDA

    @property
    def is_meta(self) -> bool:
        return False

    def tolist(self) -> list:
        return self.on_cpu.tolist()

    def numpy(self):
        raise TypeError(f"can't convert {CUDA} device type tensor to numpy")

    def __repr__(self) -> str:
        return f"FakeCudaTensor({self.on_cpu})"


class FakeCudaGenerator(torch.Generator):
    """A generator that reports the device it was created for."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls)

    def __init__(self, device="cpu") -> None:
        self.reported = CPU if torch.device(device) == CPU else CUDA  # with its index, as PyTorch reports it

    @property
    def device(self) -> torch.device:
        return self.reported


class FakeCudaMode(TorchDispatchMode):
    """Computes operations on ``CUDA`` tensors on the CPU, and raises where a GPU would."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = function.overloadpacket.__name__
        tensors = [each for each in _flatten([args, kwargs]) if isinstance(each, torch.Tensor)]
        on_cuda = any(isinstance(each, FakeCudaTensor) for each in tensors)
        if on_cuda and name not in ("copy_", "_to_copy", "index", "index_put", "index_put_"):
            cpu_tensors = [each for each in tensors if not isinstance(each, FakeCudaTensor) and each.ndim]
            if cpu_tensors:
                raise RuntimeError(f"{name}: expected all tensors on {CUDA}, but found one on the CPU")
        if kwargs.get("device") is not None:
            on_cuda = torch.device(kwargs["device"]).type == CUDA.type
            kwargs["device"] = CPU
        result = function(*_map(_to_cpu, args), **_map(_to_cpu, kwargs))
        if name.endswith("_") and not name.endswith("__") and result is not None:  # in place
            if torch.Tag.inplace_view in function.tags and on_cuda:  # such as transpose_, which changes the shape
                with no_dispatch():
                    function(*args, **kwargs)
            return args[0]
        return _map(_to_cuda, result) if on_cuda else result


def _flatten(values) -> Iterator:
    if isinstance(values, dict):
        values = list(values.values())
    for value in values:
        if isinstance(value, list | tuple | dict):
            yield from _flatten(value)
        else:
            yield value


def _map(function: Callable, values):
    """Apply a function inside tuples, lists and dicts, several times as fast as PyTorch's ``tree_map``."""
    if isinstance(values, dict):
        return {name: _map(function, value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(_map(function, value) for value in values)
    return function(values)


def _to_cpu(value):
    return value.on_cpu if isinstance(value, FakeCudaTensor) else value


def _to_cuda(value):
    return FakeCudaTensor(value) if isinstance(value, torch.Tensor) and not isinstance(value, FakeCudaTensor) else value


def _create_on_cpu(function: Callable) -> Callable:
    def create(data, *, device=CPU, **options):
        return data.to(device) if isinstance(data, torch.Tensor) else function(data, **options).to(device)

    return create


@contextmanager
def fake_gpu(monkeypatch) -> Iterator[None]:
    """Imitate a GPU inside the block."""
    with monkeypatch.context() as patched, FakeCudaMode():
        for name in ("tensor", "as_tensor"):  # these bypass every dispatch mode: create on the CPU, then move
            patched.setattr(torch, name, _create_on_cpu(getattr(torch, name)))
        patched.setattr(torch, "Generator", FakeCudaGenerator)
        patched.setattr(torch.cuda, "_lazy_init", lambda: None)  # nothing to initialize
        patched.setattr(torch.cuda, "get_device_name", lambda: "Imitated GPU")
        yield
