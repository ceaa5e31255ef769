"""Passes of a model over held-out pairs: how many sequences go through it together, and its evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from core.models import Seq2Seq

CHUNK = 1_000  # sequences per forward pass at most: enough to use all cores
DECODED = 250  # sequences that are decoded together at most: each keeps its keys and values; 500 take no less time
MAX_FLOATS = 25_000_000  # of the widest tensor of a forward pass, logits included: 100 MB
MAX_SCORED_FLOATS = 5_000_000  # of that of a pass whose logits are all scored, which takes two more of that size


def sequences_per_pass(model: Seq2Seq, length: int, *, most: int | None = None) -> int:
    """Return how many sequences to run through a model together, at least 1 and at most ``CHUNK``.

    As many as keep the widest tensor, the logits or the inside of a feed-forward network, within a number of floats.

    Args:
        length: tokens of the longest source or target.
        most: that number; None is ``MAX_FLOATS``.
    """
    layers = [module.out_features for module in model.modules() if isinstance(module, torch.nn.Linear)]
    widest = max(model.vocab_sizes[1], *layers, 1)
    return max(1, min(CHUNK, (MAX_FLOATS if most is None else most) // (length * widest)))


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside the block, and back into its previous mode after it."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
