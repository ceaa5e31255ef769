"""Gold alignment: the source positions that each answer token comes from, as the task defines them.

If an answer has a single correct order, the alignment depends only on the input. In a translation it depends on the
words that the model produced; see ``Task.produced_alignment``.
"""

from collections.abc import Sequence

import torch

from core.tasks import Batch, Task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID, until_eos


def gold_cells(sources: Sequence[Sequence[int]], *, steps: int) -> list[tuple[int, int]]:
    """Return the (step, source column) cells of a map over the source that the gold alignment marks.

    Args:
        sources: per answer symbol, the indices of the source symbols it may come from; see ``Task.gold_alignment``.
        steps: rows of the map; later answer symbols are ignored.
    """
    return [(step, index + 1) for step, indices in enumerate(sources[:steps]) for index in indices]  # column 0 is BOS


def gold_alignment(task: Task, pairs: Batch, tokens: torch.Tensor, *, steps: int) -> torch.Tensor:
    """Mark the source columns that the token of each decoding step may come from; see ``Task.produced_alignment``.

    Args:
        tokens: the produced tokens, (B, T) int64.

    Returns:
        (B, steps, S) bool, over the columns of ``pairs.src``; all False at steps without a source, such as EOS.
    """
    cells: list[tuple[int, int, int]] = []
    for row, (ids, produced) in enumerate(zip(pairs.src.tolist(), tokens.tolist(), strict=True)):
        symbols = task.src_vocab.decode([index for index in ids if index not in (PAD_ID, BOS_ID, EOS_ID)])
        sources = task.produced_alignment(symbols, task.tgt_vocab.decode(until_eos(produced)))
        cells += [(row, *cell) for cell in gold_cells(sources, steps=steps)]
    marked = torch.zeros(len(pairs), steps, pairs.src.shape[1], dtype=torch.bool)  # filled on the CPU first
    if cells:
        marked[tuple(torch.tensor(cells).unbind(dim=1))] = True
    return marked.to(pairs.src.device)
