"""Every step of a decode, and where each head looked in the source meanwhile."""

import pandas as pd
import torch
import torch.nn.functional as F

from core.generation import GenerationResult
from core.interpret.measures import entropy, hits, share_on, uniform_share
from core.interpret.rows import rows_of, source_block
from core.tasks import NO_SOURCE, Batch, Task
from core.text.vocab import PAD_ID


def step_table(task: Task, pairs: Batch, decoded: GenerationResult) -> pd.DataFrame:
    """Tell for every head and every step of a decode where in the source it looked and what came of it.

    Args:
        pairs: sources of one length, without PAD, and their references.
        decoded: with maps.

    Returns:
        A row a (layer, head, sequence, step), all but ``sequence`` and ``step`` numbered from 1, with the columns

        - ``source_length``: symbols in the input;
        - ``length``: symbols in the answer; the step of that number is the one to write EOS at;
        - ``looked_at``: the source column with the largest weight;
        - ``true_column``: the source column the step's token comes from, -1 where there is none; of several that it
          may come from, the one nearest to ``looked_at``;
        - ``share``: the weight on the true column, or on all of them together, 0-1; ``uniform``: what it would be if
          every token there was to look at got the same weight;
        - ``hit``: whether the largest weight is on a true column, 0-1: a fraction where several weights are largest;
        - ``entropy``: of the weights over the source, divided by the log of the number of its tokens, 0-1;
        - ``is_right``: whether the step wrote the token of the reference.
    """
    rows = rows_of(source_block(decoded), task, pairs, decoded)
    keys, steps = pairs.src.shape[1], decoded.tokens.shape[1]
    weights, seen = rows.weights[..., :keys], rows.seen[:, :keys]  # (L, H, N, S)
    looked_at = weights.argmax(dim=-1)
    reference = F.pad(pairs.tgt_out, (0, max(0, steps - pairs.tgt_out.shape[1])))[:, :steps]
    of_heads = {
        "looked_at": looked_at,
        "true_column": _nearest(rows.produced, looked_at),
        "share": share_on(weights, rows.produced),
        "hit": hits(weights, seen, rows.produced),
        "entropy": entropy(weights, seen),
    }
    of_rows = {
        "sequence": rows.sequence,
        "step": rows.index,
        "uniform": uniform_share(rows.seen, rows.produced),
        "is_right": (decoded.tokens == reference)[rows.sequence, rows.index],
        "length": (pairs.tgt_out != PAD_ID).sum(dim=1)[rows.sequence] - 1,
    }
    layers, heads, count = looked_at.shape
    of_rows = {name: values.expand(layers, heads, count) for name, values in of_rows.items()}
    table = {name: values.flatten().cpu().numpy() for name, values in (of_rows | of_heads).items()}
    layer, head, _ = torch.ones(layers, heads, count, dtype=torch.bool).nonzero(as_tuple=True)
    return pd.DataFrame({"layer": layer.numpy() + 1, "head": head.numpy() + 1, **table}).assign(source_length=keys - 2)


def _nearest(cells: torch.Tensor, looked_at: torch.Tensor) -> torch.Tensor:
    """Return the marked column of each row (N, S) bool nearest to others (…, N) int64; -1 where none is marked."""
    columns = torch.arange(cells.shape[-1], device=cells.device)
    distance = (columns - looked_at[..., None]).abs().masked_fill(~cells, cells.shape[-1])
    return distance.argmin(dim=-1).masked_fill(~cells.any(dim=-1), NO_SOURCE)
