"""Errors of attention for inputs of a wrong shape or type, in the names of their axes and with the rule.

PyTorch would say which sizes do not match, but not of what; a mask of the numbers 0 and 1 it would add to the scores.
"""

import torch


def check_states(name: str, states: torch.Tensor, d_model: int) -> None:
    """Raise ValueError unless ``states`` are (B, T, D) with D = ``d_model``."""
    if states.ndim != 3 or states.shape[-1] != d_model:
        raise ValueError(f"{name} is {_named(states, 'BTD')}: it must be (B, T, D) with D={d_model}")


def check_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> None:
    """Check what attention reads.

    Args:
        query: (B, H, Tq, K).
        key, value: (B, H, Tk, K), or fewer sequences or heads that the queries share in equal numbers.
        mask: bool, broadcastable to (B, H, Tq, Tk); True = may attend.

    Raises:
        ValueError: a shape does not fit the others.
        TypeError: the mask is not bool.
    """
    if key.shape != value.shape:
        raise ValueError(f"keys are {_named(key, 'BHTK')} and values {_named(value, 'BHTK')}: they must be equal")
    is_grouped = query.ndim == key.ndim == 4 and query.shape[1] % max(1, key.shape[1]) == 0
    if not is_grouped or query.shape[3] != key.shape[3]:
        sizes = f"queries are {_named(query, 'BHTK')} and keys {_named(key, 'BHTK')}"
        raise ValueError(f"{sizes}: both must be (B, H, T, K) with one K, and with one H or fewer shared heads of keys")
    if query.shape[0] % max(1, key.shape[0]):
        raise ValueError(
            f"there are queries of B={query.shape[0]} sequences and keys of B={key.shape[0]}: queries must have the "
            "B of the keys, or a multiple of it, as beams of a source do"
        )
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask is {str(mask.dtype).removeprefix('torch.')}: it must be bool, True = may attend. Write mask.bool() "
            "if 1 means may attend, mask == 0 if 1 means hidden or if it is added to the scores"
        )
    whole = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if mask.ndim > len(whole) or any(
        size not in (1, most) for size, most in zip(reversed(mask.shape), reversed(whole), strict=False)
    ):
        axes = ", ".join(f"{axis}={size}" for axis, size in zip(("B", "H", "Tq", "Tk"), whole, strict=True))
        raise ValueError(f"mask is {tuple(mask.shape)}: it must be broadcastable to (B, H, Tq, Tk), here ({axes})")


def _named(tensor: torch.Tensor, axes: str) -> str:
    """Return a shape as ``(B=2, T=5, D=60)``, without names if it has another number of axes."""
    if tensor.ndim != len(axes):
        return str(tuple(tensor.shape))
    return "(" + ", ".join(f"{axis}={size}" for axis, size in zip(axes, tensor.shape, strict=True)) + ")"
