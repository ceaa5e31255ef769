"""Pairs with numbers that can be read from them."""

import torch

from core.tasks import Batch


def numbered_pairs(lengths: list[int]) -> Batch:
    """Pairs of these lengths; the symbols of each are its number, from 1."""
    rows = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        rows[row, :length] = row + 1
    return Batch(rows, rows)
