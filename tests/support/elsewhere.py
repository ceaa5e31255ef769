"""A device that is not there: tensors that say they are on ``cuda`` and refuse to be mixed with those on the CPU.

Everything is computed on the CPU. It shows on a machine without a GPU what a GPU would refuse: a tensor made on the
CPU by accident, or one handed to NumPy without having been fetched.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

HERE, THERE = torch.device("cpu"), torch.device("cuda:0")


class Elsewhere(torch.Tensor):
    """A tensor that says it is on ``THERE``; its numbers are in ``held``, on the CPU."""

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Elsewhere":
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device="meta", requires_grad=held.requires_grad
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        with Pretence():
            return function(*args, **(kwargs or {}))

    @property
    def device(self) -> torch.device:
        return THERE

    @property
    def is_meta(self) -> bool:
        return False

    def tolist(self) -> list:
        return self.held.tolist()

    def numpy(self):
        raise TypeError(f"can't convert {THERE} device type tensor to numpy")

    def __repr__(self) -> str:
        return f"Elsewhere({self.held})"


class Generator(torch.Generator):
    """A generator that says it is on ``THERE``."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls)

    def __init__(self, device="cpu") -> None:
        self.claimed = HERE if torch.device(device) == HERE else THERE  # with its number, as PyTorch gives it

    @property
    def device(self) -> torch.device:
        return self.claimed


class Pretence(TorchDispatchMode):
    """Computes on the CPU what is asked of ``THERE``, and refuses what a GPU would refuse."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = function.overloadpacket.__name__
        tensors = [each for each in _flat([args, kwargs]) if isinstance(each, torch.Tensor)]
        there = any(isinstance(each, Elsewhere) for each in tensors)
        if there and name not in ("copy_", "_to_copy", "index", "index_put", "index_put_"):
            strangers = [each for each in tensors if not isinstance(each, Elsewhere) and each.ndim]
            if strangers:
                raise RuntimeError(f"{name}: expected all tensors on {THERE}, but found one on the CPU")
        if kwargs.get("device") is not None:
            there = torch.device(kwargs["device"]).type == THERE.type
            kwargs["device"] = HERE
        held = [tree_map(_held, list(args)), tree_map(_held, kwargs)]
        result = function(*held[0], **held[1])
        if name.endswith("_") and not name.endswith("__") and result is not None:  # in place
            if torch.Tag.inplace_view in function.tags and there:  # such as transpose_, which changes the shape
                with no_dispatch():
                    function(*args, **kwargs)
            return args[0]
        return tree_map(_moved, result) if there else result


def _flat(values) -> Iterator:
    if isinstance(values, dict):
        values = list(values.values())
    for value in values:
        if isinstance(value, list | tuple | dict):
            yield from _flat(value)
        else:
            yield value


def _held(value):
    return value.held if isinstance(value, Elsewhere) else value


def _moved(value):
    return Elsewhere(value) if isinstance(value, torch.Tensor) and not isinstance(value, Elsewhere) else value


def _by_way_of_the_cpu(function: Callable) -> Callable:
    def make(data, *, device=HERE, **rest):
        return data.to(device) if isinstance(data, torch.Tensor) else function(data, **rest).to(device)

    return make


@contextmanager
def pretended_gpu(monkeypatch) -> Iterator[None]:
    """Let ``cuda`` be there inside the block."""
    with monkeypatch.context() as patched, Pretence():
        for name in ("tensor", "as_tensor"):  # which look past every mode, so they are led there by way of the CPU
            patched.setattr(torch, name, _by_way_of_the_cpu(getattr(torch, name)))
        patched.setattr(torch, "Generator", Generator)
        patched.setattr(torch.cuda, "_lazy_init", lambda: None)  # there is nothing to prepare
        yield
