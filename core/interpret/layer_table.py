"""How much the attention of two layers agrees, measured on a model's own generations."""

import pandas as pd
import torch

from core.evaluation.passes import evaluation_mode
from core.generation import generate
from core.interpret.map_rows import map_rows, recordable_chunks
from core.interpret.measures import layer_distances
from core.models import Seq2Seq
from core.models.seq2seq import BLOCKS
from core.tasks import Batch, Task


@torch.no_grad()
def measure_layers(model: Seq2Seq, task: Task, pairs: Batch) -> pd.DataFrame:
    """Generate answers to pairs, without padding, and compare the mean patterns of every two layers of a block.

    Rows are those of ``head_table``: PAD and one-key rows never count. The model's mode and weights are unchanged.

    Returns:
        One row per pair of layers, with ``block`` ("encoder", "decoder" or "cross"), ``first`` and ``second``, the
        layers from 1, and ``distance``: the mean Jensen–Shannon distance of the layers' mean patterns, 0 the same
        weights to 1 no key in common. Empty for a model with one layer a block.
    """
    sums: dict[str, torch.Tensor] = {}
    counts: dict[str, int] = {}
    with evaluation_mode(model):
        for _, chunk in recordable_chunks(model, pairs):
            decoded = generate(model, chunk.src, max_steps=model.max_seq_len, need_weights=True)
            for block in BLOCKS:
                rows = map_rows(block, task, chunk, decoded)
                if rows is not None:
                    total = layer_distances(rows.weights).cpu().double()  # on the CPU: not every device has float64
                    sums[block] = sums.get(block, torch.zeros_like(total)) + total
                    counts[block] = counts.get(block, 0) + len(rows.index)
    records = [
        (block, first + 1, second + 1, (total[first, second] / counts[block]).item() if counts[block] else float("nan"))
        for block, total in sums.items()
        for first in range(len(total))
        for second in range(first + 1, len(total))
    ]
    return pd.DataFrame(records, columns=["block", "first", "second", "distance"])
