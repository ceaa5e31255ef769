"""Pairs in portions whose attention can be recorded without filling the memory."""

from collections.abc import Iterator

import torch

from core.evaluation.accuracy import unpadded_batches
from core.generation import generate
from core.interpret.rows import BLOCKS
from core.models import Seq2Seq
from core.tasks import Batch

MAX_WEIGHTS = 20_000_000  # recorded at once, 4 bytes each; measuring them takes some times that


def recordable_chunks(model: Seq2Seq, pairs: Batch) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Split pairs into chunks without padding, none of which records more than ``MAX_WEIGHTS`` weights.

    It is made for answers as long as the model can write. A chunk is one sequence at least.

    Args:
        model: in evaluation mode.

    Yields:
        The places (N,) int64 of a chunk's pairs among all, and the chunk.
    """
    maps = generate(model, pairs.src[:1], max_steps=1, need_weights=True).maps
    heads = sum(each.shape[0] * each.shape[2] for block in BLOCKS if (each := getattr(maps, block)) is not None)
    for places, chunk in unpadded_batches(pairs):
        source = chunk.src.shape[1]
        most = max(source, model.max_seq_len) * (source + model.max_seq_len)  # weights of a head
        for rows in torch.arange(len(chunk)).split(max(1, MAX_WEIGHTS // (heads * most))):
            yield places[rows], chunk[rows]
