"""The task's true map: where in the source each token of the answer comes from."""

from collections.abc import Sequence

import torch

from core.tasks import Batch, Task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def gold_cells(sources: Sequence[Sequence[int]], *, steps: int) -> list[tuple[int, int]]:
    """Return the (step, source column) cells of a map over the source where the answer's symbols may come from.

    Args:
        sources: of the answer's symbols, from ``Task.sources``.
    """
    return [(step, place + 1) for step, places in enumerate(sources[:steps]) for place in places]


def gold_alignment(task: Task, pairs: Batch, *, steps: int) -> torch.Tensor:
    """Say at which source columns the token may come from that belongs at each place of the answer.

    It goes by the place alone: where a model writes another token there, the cells are still the right one's.

    Returns:
        (B, steps, S) bool, over the columns of ``pairs.src``; no column at a step with no source of its own, EOS's
        among them.
    """
    cells: list[tuple[int, int, int]] = []
    for row, ids in enumerate(pairs.src.tolist()):
        symbols = task.src_vocab.decode([index for index in ids if index not in (PAD_ID, BOS_ID, EOS_ID)])
        cells += [(row, *cell) for cell in gold_cells(task.sources(symbols), steps=steps)]
    marked = torch.zeros(len(pairs), steps, pairs.src.shape[1], dtype=torch.bool)  # filled on the CPU first
    if cells:
        marked[tuple(torch.tensor(cells).unbind(dim=1))] = True
    return marked.to(pairs.src.device)
