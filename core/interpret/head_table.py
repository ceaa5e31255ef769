"""A table of every attention head of a model, measured on its own generations."""

from typing import Any

import pandas as pd
import torch

from core.evaluation.passes import evaluation_mode
from core.generation import GenerationResult, generate
from core.interpret.induction import RepeatedTokens
from core.interpret.map_rows import MapRows, map_rows, recordable_chunks
from core.interpret.measures import (
    aer_row_weights,
    argmax_accuracy,
    attention_mass,
    head_distances,
    normalized_entropy,
    offset_counts,
    uniform_mass,
)
from core.models import Seq2Seq
from core.models.seq2seq import BLOCKS
from core.tasks import Batch, Task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

POSITIONAL = 0.9  # fraction of argmaxes at one offset (Voita et al. 2019)
MEASURES = (
    *("mass_produced", "uniform_produced", "aer_produced", "uniform_aer_produced"),
    *("mass_read", "uniform_read", "aer_read", "uniform_aer_read"),
    *("entropy", "offset", "offset_fraction", "confidence", "distance", "nearest_head"),
    *("mass_bos", "mass_eos", "mass_pad"),
)

WeightedSum = tuple[torch.Tensor, torch.Tensor]  # the weighted sum of a measure over rows, and the sum of the weights
Sums = dict[str, dict[str, WeightedSum]]  # by block and measure


def head_table(task: Task, pairs: Batch, result: GenerationResult) -> pd.DataFrame:
    """Measure every head of every block on a generation that recorded its maps.

    Every number is a mean over the valid rows of all sequences (see ``MapRows``): PAD and one-key rows never count.
    The formulas and their references are in ``measures``.

    The alignment columns come in two kinds: a head may attend to the source of the token that the step *produces*, or
    to that of the token it *read*. They apply to the block that attends to the source while decoding ("cross",
    "decoder" in a decoder-only model, "encoder" in an encoder-only one, which reads no tokens) and are NaN elsewhere
    and for tasks without a gold alignment.

    Returns:
        One row per head, with the columns

        - ``block`` ("encoder", "decoder" or "cross"), ``layer`` and ``head``, numbered from 1;
        - ``links``: number of rows with a gold alignment of the token produced;
        - ``rows``: number of rows averaged over; if 0, all following columns are NaN;
        - ``mass_produced``, ``mass_read``: attention mass on the gold alignment, 0-1; ``uniform_produced``,
          ``uniform_read``: the same for uniform attention;
        - ``aer_produced``, ``aer_read``: alignment error rate of the argmax over the source, 0-1;
          ``uniform_aer_produced``, ``uniform_aer_read``: the same for a column chosen at random;
        - ``entropy``: divided by the log of the number of visible keys, 0-1;
        - ``offset``: the most frequent offset of the argmax from its row, in tokens; see ``MapRows.offsets``;
          ``offset_fraction``: how frequent, 0-1; ``positional``: whether that is at least 90 %;
        - ``confidence``: mean of the largest weight, 0-1 (Voita et al. 2019, who leave EOS out; see ``mass_eos``);
        - ``distance``: Jensen–Shannon distance to the most similar other head of the layer, 0-1, and
          ``nearest_head``, that head; NaN and NA in a layer with one head. A small one means that either may be
          redundant;
        - ``mass_bos``, ``mass_eos``, ``mass_pad``: attention mass on these tokens, 0-1.
    """
    span = pairs.src.shape[1] + result.tokens.shape[1]
    return _table(_sums(task, pairs, result, span=span), span=span)


@torch.no_grad()
def measure_heads(model: Seq2Seq, task: Task, pairs: Batch) -> pd.DataFrame:
    """Generate answers to pairs, without padding, and measure every head on them; see ``head_table``.

    The table of a decoder-only model has two more columns, ``induction`` and ``previous_token``, 0-1, measured on
    random tokens that are repeated; see ``core.interpret.induction``.

    Memory is bounded for any number of pairs. The model's mode and weights are unchanged.

    Raises:
        InputError: the model has no heads.
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to measure heads on")
    span = 2 * model.max_seq_len
    sums: Sums = {}
    with evaluation_mode(model):
        for _, chunk in recordable_chunks(model, pairs):
            decoded = generate(model, chunk.src, max_steps=model.max_seq_len, need_weights=True)
            sums = _added(sums, _sums(task, chunk, decoded, span=span))
    table = _table(sums, span=span)
    repeated = RepeatedTokens.like(pairs, task, model)
    if repeated is None:
        return table
    scores = repeated.scores(model)
    return table.assign(
        induction=scores.induction.double().flatten().numpy(),
        previous_token=scores.previous_token.double().flatten().numpy(),
    )


def _sums(task: Task, pairs: Batch, result: GenerationResult, *, span: int) -> Sums:
    return {
        block: _sums_of_rows(rows, span)
        for block in BLOCKS
        if (rows := map_rows(block, task, pairs, result)) is not None  # one at a time: each is a copy of its maps
    }


def _sums_of_rows(rows: MapRows, span: int) -> dict[str, WeightedSum]:
    """Sum every measure over rows; most to (L, H) float64."""
    weights, ones = rows.weights, torch.ones_like(rows.index, dtype=torch.float32)
    means = {
        "entropy": (normalized_entropy(weights, rows.visible), ones),
        "confidence": (weights.amax(dim=-1), ones),
    }
    for name, token in (("mass_bos", BOS_ID), ("mass_eos", EOS_ID), ("mass_pad", PAD_ID)):
        means[name] = (attention_mass(weights, rows.keys == token), ones)
    for name, cells in (("produced", rows.produced), ("read", rows.read)):
        if cells is not None:
            links = aer_row_weights(cells)
            has_link = (links > 0).float()
            means[f"mass_{name}"] = (attention_mass(weights, cells), has_link)
            means[f"uniform_{name}"] = (uniform_mass(rows.visible, cells).expand(weights.shape[:-1]), has_link)
            means[f"aer_{name}"] = (1 - argmax_accuracy(weights, rows.visible, cells), links)
            at_random = 1 - uniform_mass(rows.visible[:, : cells.shape[-1]], cells)
            means[f"uniform_aer_{name}"] = (at_random.expand(weights.shape[:-1]), links)
    sums = {name: ((values * counts).sum(dim=-1), counts.sum()) for name, (values, counts) in means.items()}
    sums["offsets"] = (offset_counts(weights, rows.visible, rows.offsets, span=span), ones.sum())
    sums["distances"] = (head_distances(weights), ones.sum())
    # On the CPU: not every device has float64.
    return {name: (total.cpu().double(), count.cpu().double()) for name, (total, count) in sums.items()}


def _added(first: Sums, second: Sums) -> Sums:
    if not first:
        return second
    return {
        block: {
            name: (total + second[block][name][0], count + second[block][name][1])
            for name, (total, count) in sums.items()
        }
        for block, sums in first.items()
    }


def _table(sums: Sums, *, span: int) -> pd.DataFrame:
    return pd.concat([_block_table(block, of_block, span) for block, of_block in sums.items()], ignore_index=True)


def _block_table(block: str, sums: dict[str, WeightedSum], span: int) -> pd.DataFrame:
    means = {name: total / count for name, (total, count) in sums.items()}
    layers, heads = means["entropy"].shape
    most_frequent = means["offsets"].max(dim=-1)
    to_others = means["distances"].masked_fill(torch.eye(heads, dtype=torch.bool), torch.inf)
    nearest = to_others.min(dim=-1)
    means["offset_fraction"] = most_frequent.values
    means["offset"] = torch.where(most_frequent.values.isnan(), torch.nan, most_frequent.indices - span)
    means["distance"] = torch.where(nearest.values.isfinite(), nearest.values, torch.nan)
    means["nearest_head"] = torch.where(nearest.values.isfinite(), nearest.indices + 1, torch.nan)
    missing = torch.full((layers, heads), torch.nan)
    columns: dict[str, Any] = {
        "block": block,
        "layer": [layer for layer in range(1, layers + 1) for _ in range(heads)],
        "head": [*range(1, heads + 1)] * layers,
        "links": int(sums["mass_produced"][1]) if "mass_produced" in sums else 0,
        "rows": int(sums["entropy"][1]),
    }
    for name in MEASURES:
        columns[name] = means.get(name, missing).flatten().numpy()
        if name == "offset_fraction":
            columns["positional"] = columns[name] >= POSITIONAL
    return pd.DataFrame(columns).astype({"offset": "Int64", "nearest_head": "Int64"})
