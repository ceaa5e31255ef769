"""Errors of modules for inputs of a wrong shape or type, in the names of their axes and with the rule.

PyTorch would say which sizes do not match, but not of what; a mask of the numbers 0 and 1 it would add to the scores.
"""

import torch


def check_states(name: str, states: torch.Tensor, d_model: int, batch: int | None = None) -> None:
    """Raise ValueError unless ``states`` are (B, T, D) with D = ``d_model`` and, if it is passed, B = ``batch``."""
    if states.ndim != 3 or states.shape[-1] != d_model or (batch is not None and len(states) != batch):
        rows = "" if batch is None else f"B={batch} and "
        raise ValueError(f"{name} is {_named(states, 'BTD')}: it must be (B, T, D) with {rows}D={d_model}")


def check_width(name: str, states: torch.Tensor, d_model: int) -> None:
    """Raise ValueError unless the last axis of ``states`` (…, D) has D = ``d_model``."""
    if states.shape[-1:] != (d_model,):
        raise ValueError(f"{name} is {tuple(states.shape)}: its last axis must be D={d_model}")


def check_vectors(name: str, vectors: torch.Tensor, width: int, batch: int | None = None) -> None:
    """Raise ValueError unless ``vectors`` are (B, D) with D = ``width`` and, if it is passed, B = ``batch``."""
    if vectors.ndim != 2 or vectors.shape[-1] != width or (batch is not None and len(vectors) != batch):
        rows = "" if batch is None else f"B={batch} and "
        raise ValueError(f"{name} is {_named(vectors, 'BD')}: it must be (B, D) with {rows}D={width}")


def check_token_ids(name: str, ids: torch.Tensor, vocab_size: int, longest: int | None = None) -> None:
    """Check what an embedding reads.

    Args:
        ids: (B, T) int64 from 0 to ``vocab_size`` - 1. On devices other than a CPU their values are not checked.
        longest: maximum of T; None for any.

    Raises:
        TypeError: the ids are not int64.
        ValueError: their shape is another one, they are too many, or one is not in the vocabulary.
    """
    if ids.dtype != torch.int64:
        raise TypeError(f"{name} is {str(ids.dtype).removeprefix('torch.')}: token ids must be int64")
    if ids.ndim != 2:
        raise ValueError(f"{name} is {tuple(ids.shape)}: token ids must be (B, T)")
    if longest is not None and ids.shape[1] > longest:
        raise ValueError(f"{name} is {_named(ids, 'BT')}: T must be at most {longest}, the positions that there are")
    if ids.device.type != "cpu" or torch.compiler.is_compiling() or not ids.numel():
        return  # elsewhere the check would wait for the device
    lowest, highest = (limit.item() for limit in ids.aminmax())
    if not 0 <= lowest <= highest < vocab_size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"{name} has token id {wrong}: ids must be from 0 to {vocab_size - 1}")


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
    if mask is not None:
        check_mask(mask, {"B": query.shape[0], "H": query.shape[1], "Tq": query.shape[2], "Tk": key.shape[2]})


def check_additive_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> None:
    """Check what additive attention reads: query (B, D), keys and values (B, S, D), and a mask as ``check_attention``.

    Raises:
        ValueError: a shape does not fit the others.
        TypeError: the mask is not bool.
    """
    if key.shape != value.shape:
        raise ValueError(f"keys are {_named(key, 'BSD')} and values {_named(value, 'BSD')}: they must be equal")
    check_vectors("query", query, key.shape[-1], batch=len(key))
    if mask is not None:
        check_mask(mask, {"B": len(key), "H": 1, "Tq": 1, "Tk": key.shape[1]})


def check_mask(mask: torch.Tensor, sizes: dict[str, int]) -> None:
    """Raise TypeError unless a mask is bool, ValueError unless it is broadcastable to these axes."""
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask is {str(mask.dtype).removeprefix('torch.')}: it must be bool, True = may attend. Write mask.bool() "
            "if 1 means may attend, mask == 0 if 1 means hidden or if it is added to the scores"
        )
    if mask.ndim > len(sizes) or any(
        size not in (1, most) for size, most in zip(reversed(mask.shape), reversed(sizes.values()), strict=False)
    ):
        axes = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        raise ValueError(f"mask is {tuple(mask.shape)}: it must be broadcastable to (B, H, Tq, Tk), here ({axes})")


def _named(tensor: torch.Tensor, axes: str) -> str:
    """Return a shape as ``(B=2, T=5, D=60)``, without names if it has another number of axes."""
    if tensor.ndim != len(axes):
        return str(tuple(tensor.shape))
    return "(" + ", ".join(f"{axis}={size}" for axis, size in zip(axes, tensor.shape, strict=True)) + ")"
