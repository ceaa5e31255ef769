"""Every head of every block of a model in numbers, from decodes that happened."""

import pandas as pd
import torch

from core.evaluation.accuracy import evaluation_mode
from core.generation import GenerationResult, generate
from core.interpret.chunks import recordable_chunks
from core.interpret.measures import (
    distances,
    entropy,
    hits,
    link_counts,
    offset_counts,
    share_on,
    uniform_share,
)
from core.interpret.rows import BLOCKS, Rows, rows_of
from core.models import Seq2Seq
from core.tasks import Batch, Task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

POSITIONAL = 0.9  # share of arg-maxes at one offset, by Voita et al. 2019
MEASURES = (
    *("share_produced", "uniform_produced", "aer_produced", "share_read", "uniform_read", "aer_read"),
    *("entropy", "offset", "offset_share", "confidence", "distance", "nearest_head", "on_bos", "on_eos", "on_pad"),
)

Sum = tuple[torch.Tensor, torch.Tensor]  # a measure summed over rows, and over how many
Sums = dict[str, dict[str, Sum]]  # by block and measure


def head_table(task: Task, pairs: Batch, decoded: GenerationResult) -> pd.DataFrame:
    """Score every head of every block on a decode that recorded its maps.

    Every figure is a mean over rows: those of all sequences alike, as ``Rows`` has them, so PAD and one-key rows never
    count. The formulas and where they are from stand in ``measures``.

    "Produced" and "read" tell two ways to look apart: at where the token comes from that a step has to *produce*, and
    at where the one it has just *read* came from. They are for heads that look at the source while an answer is
    written, of the block "cross", or "decoder" where there is no encoder; NaN elsewhere, and where the task has no
    true map. An encoder has none: its rows are no tokens of an answer.

    Returns:
        A row a head, with the columns

        - ``block`` ("encoder", "decoder" or "cross"), ``layer`` and ``head``, numbered from 1;
        - ``rows``: how many the means are over; a head without any has NaN in all that follows;
        - ``share_produced``, ``share_read``: attention on the true map, 0-1; ``uniform_produced``, ``uniform_read``:
          what attending to all keys alike would score;
        - ``aer_produced``, ``aer_read``: alignment error rate of the arg-max over the source, 0-1;
        - ``entropy``: divided by the logarithm of the keys that there were to look at, 0-1;
        - ``offset``: the commonest one of the arg-max from its row, in tokens; see ``Rows.offsets``.
          ``offset_share``: how common, 0-1; ``positional``: whether it is so in at least 90 % of the rows;
        - ``confidence``: the largest weight, 0-1 (Voita et al. 2019, who leave EOS out; here ``on_eos`` tells of it);
        - ``distance``: Jensen–Shannon distance to the layer's most similar other head, 0-1, and ``nearest_head``,
          which; NaN and NA in a layer of one head. A small one means that either head may be redundant;
        - ``on_bos``, ``on_eos``, ``on_pad``: attention on these tokens, 0-1.
    """
    span = pairs.src.shape[1] + decoded.tokens.shape[1]
    return _table(_sums(task, pairs, decoded, span=span), span=span)


@torch.no_grad()
def measure_heads(model: Seq2Seq, task: Task, pairs: Batch) -> pd.DataFrame:
    """Decode pairs, each as if alone, and score every head on that; see ``head_table``.

    Memory is bounded, whatever the number of pairs. The model's mode and weights are left as they were.

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to measure heads on")
    span, sums = 2 * model.max_seq_len, {}
    with evaluation_mode(model):
        for _, chunk in recordable_chunks(model, pairs):
            decoded = generate(model, chunk.src, max_steps=model.max_seq_len, need_weights=True)
            sums = _added(sums, _sums(task, chunk, decoded, span=span))
    return _table(sums, span=span)


def _sums(task: Task, pairs: Batch, decoded: GenerationResult, *, span: int) -> Sums:
    return {
        block: _measured(rows, span)
        for block in BLOCKS
        if (rows := rows_of(block, task, pairs, decoded)) is not None  # one at a time: each is a copy of its maps
    }


def _measured(rows: Rows, span: int) -> dict[str, Sum]:
    """Sum every measure over rows; most to (L, H) float64."""
    weights, every = rows.weights, torch.ones_like(rows.index, dtype=torch.float32)
    means = {
        "entropy": (entropy(weights, rows.seen), every),
        "confidence": (weights.amax(dim=-1), every),
    }
    for name, token in (("on_bos", BOS_ID), ("on_eos", EOS_ID), ("on_pad", PAD_ID)):
        means[name] = (share_on(weights, rows.keys == token), every)
    for name in ("produced", "read"):
        cells = getattr(rows, name)
        if cells is not None:
            links = link_counts(cells)
            has_link = (links > 0).float()
            means[f"share_{name}"] = (share_on(weights, cells), has_link)
            means[f"uniform_{name}"] = (uniform_share(rows.seen, cells).expand(weights.shape[:-1]), has_link)
            means[f"aer_{name}"] = (1 - hits(weights, rows.seen, cells), links)
    sums = {name: ((values * counts).sum(dim=-1), counts.sum()) for name, (values, counts) in means.items()}
    sums["offsets"] = (offset_counts(weights, rows.seen, rows.offsets, span=span), every.sum())
    sums["distances"] = (distances(weights), every.sum())
    # On the CPU: not every device has float64.
    return {name: (total.cpu().double(), count.cpu().double()) for name, (total, count) in sums.items()}


def _added(first: Sums, second: Sums) -> Sums:
    if not first:
        return second
    return {
        block: {
            name: tuple(a + b for a, b in zip(sums, second[block][name], strict=True))
            for name, sums in first[block].items()
        }
        for block in first
    }


def _table(sums: Sums, *, span: int) -> pd.DataFrame:
    return pd.concat([_block_table(block, of_block, span) for block, of_block in sums.items()], ignore_index=True)


def _block_table(block: str, sums: dict[str, Sum], span: int) -> pd.DataFrame:
    means = {name: total / count for name, (total, count) in sums.items()}
    layers, heads = means["entropy"].shape
    commonest = means["offsets"].max(dim=-1)
    others = means["distances"].masked_fill(torch.eye(heads, dtype=torch.bool), torch.inf)
    nearest = others.min(dim=-1)
    means["offset_share"] = commonest.values
    means["offset"] = torch.where(commonest.values.isnan(), torch.nan, commonest.indices - span)
    means["distance"] = torch.where(nearest.values.isfinite(), nearest.values, torch.nan)
    means["nearest_head"] = torch.where(nearest.values.isfinite(), nearest.indices + 1, torch.nan)
    nothing = torch.full((layers, heads), torch.nan)
    table = pd.DataFrame({name: means.get(name, nothing).flatten().numpy() for name in MEASURES})
    table.insert(0, "block", block)
    table.insert(1, "layer", [layer for layer in range(1, layers + 1) for _ in range(heads)])
    table.insert(2, "head", [*range(1, heads + 1)] * layers)
    table.insert(3, "rows", int(sums["entropy"][1]))
    table.insert(table.columns.get_loc("offset_share") + 1, "positional", table.offset_share >= POSITIONAL)
    return table.astype({"offset": "Int64", "nearest_head": "Int64"})
