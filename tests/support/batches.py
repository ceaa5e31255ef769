"""Batches: pairs with numbers that can be read from them, and those that a run trains on."""

import torch

from core.tasks import Batch, Batches, training_batches
from core.training.state import TrainingState


def batches_of(state: TrainingState) -> Batches:
    """The batches that a run trains on, as ``core.training.loop.train`` draws them."""
    config = state.preset.training
    return training_batches(
        state.task,
        sequences=config.training_sequences,
        batch_size=config.batch_size,
        group_by_length=config.group_by_length,
        tokens_per_batch=config.tokens_per_batch,
        seed=config.seed,
        device="cpu",
    )


def numbered_pairs(lengths: list[int]) -> Batch:
    """Pairs of these lengths; the symbols of each are its number, from 1."""
    rows = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        rows[row, :length] = row + 1
    return Batch(rows, rows)
