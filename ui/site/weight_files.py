"""Weights as the site's files hold them: float32, or 8 bits for a number of a matrix, which compress to two fifths."""

from collections.abc import Iterable, Mapping

import torch

from core.models.int8 import rounded

MAX_EXACT = 1_000_000  # weights of a model; those of larger ones are rounded


def weight_file(weights: Mapping[str, torch.Tensor]) -> tuple[str, bytes]:
    """Return the name and the content of the file of a run's weights.

    Args:
        weights: by name, float. Of more than ``MAX_EXACT`` numbers, matrices are ``rounded``.
    """
    if sum(weight.numel() for weight in weights.values()) <= MAX_EXACT:
        return "weights.bin", bytes_of(weights.values())
    parts = [rounded(weight) if weight.dim() > 1 else (weight, None) for weight in weights.values()]
    floats = bytes_of(scales for scales, _ in parts)
    return "weights-int8.bin", floats + bytes_of((each for _, each in parts if each is not None), "i1")


def bytes_of(tensors: Iterable[torch.Tensor], dtype: str = "<f4") -> bytes:
    """Return numbers one after the other, as NumPy's ``dtype``."""
    return b"".join(tensor.numpy().astype(dtype).tobytes() for tensor in tensors)
