"""Numbers and tensors as JSON, which has no NaN and no infinity."""

import math

import torch


def json_number(value: float | torch.Tensor | None, digits: int = 6) -> float | None:
    """Round to a number of significant digits; None stays None, and so becomes a value that is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{float(value):.{digits}g}")


def json_numbers(values: torch.Tensor) -> list[float | None]:
    """Return the numbers of a vector (N,)."""
    return [json_number(value) for value in values.tolist()]
