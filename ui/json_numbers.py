"""Numbers and tensors as JSON, which has no NaN and no infinity."""

import math

import torch


def json_number(value: float | torch.Tensor) -> float | None:
    """Round to six significant digits; None if the value is not finite."""
    return float(f"{float(value):.6g}") if math.isfinite(value) else None


def json_numbers(values: torch.Tensor) -> list[float | None]:
    """Return the numbers of a vector (N,)."""
    return [json_number(value) for value in values.tolist()]
