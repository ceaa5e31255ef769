"""The device a run computes on: the CPU, an Nvidia GPU (cuda) or an Apple GPU (mps)."""

import torch

from core.storage.error_messages import short_repr
from core.storage.errors import InputError

DEVICES = ("auto", "cpu", "cuda", "mps")


def best_device() -> str:
    """Return the fastest kind of device of this machine: "cuda", "mps" or "cpu"."""
    return next(kind for kind in ("cuda", "mps", "cpu") if _is_available(kind))


def device_named(name: str) -> str:
    """Return the device of a name; "auto" is ``best_device()``.

    Raises:
        InputError: this machine has no device of that kind.
    """
    if name == "auto":
        return best_device()
    if name not in DEVICES:
        raise InputError(f"device={short_repr(name)} is not one of {', '.join(DEVICES)}")
    if not _is_available(name):
        raise InputError(f"device={name!r}: PyTorch finds no such device on this machine; use auto or cpu")
    return name


def _is_available(kind: str) -> bool:
    if kind == "mps":
        return torch.backends.mps.is_available()
    return kind == "cpu" or torch.cuda.is_available()
