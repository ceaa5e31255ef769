"""Weights as the site's files hold them: float32, or 8 bits for a number of a matrix, which compress to two fifths."""

from collections.abc import Iterable, Mapping

import torch

MAX_EXACT = 1_000_000  # weights of a model; those of larger ones are rounded


def weight_file(weights: Mapping[str, torch.Tensor]) -> tuple[str, bytes]:
    """Return the name and the content of the file of a run's weights.

    Args:
        weights: by name, float. Of more than ``MAX_EXACT`` numbers, matrices are rounded, see ``rounded``.
    """
    if sum(weight.numel() for weight in weights.values()) <= MAX_EXACT:
        return "weights.bin", bytes_of(weights.values())
    parts = [rounded(weight) if weight.dim() > 1 else (weight, None) for weight in weights.values()]
    floats = bytes_of(scales for scales, _ in parts)
    return "weights-int8.bin", floats + bytes_of((each for _, each in parts if each is not None), "i1")


def rounded(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round a matrix (N, M) to 8 bits: the scales (N,) float of its rows, and (N, M) int8.

    A number is its row's scale times its integer of -127 to 127, and is off by half of the scale at most.
    """
    scales = matrix.float().abs().amax(dim=1) / 127
    steps = matrix.float() / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    return scales, steps.round().to(torch.int8)


def bytes_of(tensors: Iterable[torch.Tensor], dtype: str = "<f4") -> bytes:
    """Return numbers one after the other, as NumPy's ``dtype``."""
    return b"".join(tensor.numpy().astype(dtype).tobytes() for tensor in tensors)
