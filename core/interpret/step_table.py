"""A table of every decoding step: where each head attends in the source, and whether the token is correct."""

from dataclasses import replace

import pandas as pd
import torch
import torch.nn.functional as F

from core.generation import GenerationResult
from core.interpret.map_rows import MapRows, first_step_row, generated_steps, map_rows, source_block
from core.interpret.measures import aer_row_weights, argmax_accuracy, attention_mass, normalized_entropy, uniform_mass
from core.tasks import NO_SOURCE, Batch, Task
from core.text.vocab import PAD_ID


def step_table(task: Task, pairs: Batch, result: GenerationResult) -> pd.DataFrame:
    """Return where each head attends in the source at every step of a generation, with the gold alignment beside it.

    Args:
        pairs: sources of one length, without PAD, and their references.
        result: with recorded maps.

    Returns:
        One row per (layer, head, sequence, step); layer and head are numbered from 1, the others from 0. Columns:

        - ``source_length``: symbols in the input;
        - ``length``: symbols in the reference; the step of that number should produce EOS;
        - ``argmax_column``: the source column with the largest weight;
        - ``gold_column``: the source column of the correct token, -1 if there is none; if there are several, the one
          nearest to ``argmax_column``;
        - ``attention_mass``: weight on all gold columns, 0-1; ``uniform_mass``: the same for uniform attention over the
          visible keys;
        - ``argmax_accuracy``: whether the largest weight is on a gold column, 0-1: a fraction if several keys tie;
        - ``uniform_accuracy``: ``argmax_accuracy`` of a random column, 0-1;
        - ``aer_weight``: weight of the step in the alignment error rate, 0 to 2; see ``aer_row_weights``;
        - ``entropy``: of the weights over the source, divided by the log of its number of tokens, 0-1;
        - ``is_correct``: whether the step produced the token of the reference.

    Raises:
        ValueError: the generation has no maps over the source.
    """
    block = source_block(result)
    rows = map_rows(block, task, pairs, result)
    if rows is not None and block == "encoder":
        rows = _rows_of_steps(rows, result.tokens)
    if rows is None or rows.produced is None:
        raise ValueError("this generation recorded no attention over the source")
    keys, steps = pairs.src.shape[1], result.tokens.shape[1]
    weights, visible = rows.weights[..., :keys], rows.visible[:, :keys]  # (L, H, N, S)
    argmax_column = weights.argmax(dim=-1)
    reference = F.pad(pairs.tgt_out, (0, max(0, steps - pairs.tgt_out.shape[1])))[:, :steps]
    per_head = {
        "argmax_column": argmax_column,
        "gold_column": _nearest(rows.produced, argmax_column),
        "attention_mass": attention_mass(weights, rows.produced),
        "argmax_accuracy": argmax_accuracy(weights, visible, rows.produced),
        "entropy": normalized_entropy(weights, visible),
    }
    per_row = {
        "sequence": rows.sequence,
        "step": rows.index,
        "uniform_mass": uniform_mass(rows.visible, rows.produced),
        "uniform_accuracy": uniform_mass(visible, rows.produced),
        "aer_weight": aer_row_weights(rows.produced),
        "is_correct": (result.tokens == reference)[rows.sequence, rows.index],
        "length": (pairs.tgt_out != PAD_ID).sum(dim=1)[rows.sequence] - 1,
    }
    layers, heads, count = argmax_column.shape
    per_row = {name: values.expand(layers, heads, count) for name, values in per_row.items()}
    table = {name: values.flatten().cpu().numpy() for name, values in (per_row | per_head).items()}
    layer, head, _ = torch.ones(layers, heads, count, dtype=torch.bool).nonzero(as_tuple=True)
    return pd.DataFrame({"layer": layer.numpy() + 1, "head": head.numpy() + 1, **table}).assign(source_length=keys - 2)


def _rows_of_steps(rows: MapRows, tokens: torch.Tensor) -> MapRows:
    """Return the rows of an encoder-only model that belong to generated tokens (B, T); ``index`` becomes the step."""
    steps = rows.index - first_step_row("encoder")
    is_step = (steps >= 0) & (steps < tokens.shape[1])
    is_step &= generated_steps(tokens)[rows.sequence, steps.clamp(0, tokens.shape[1] - 1)]
    kept = {name: getattr(rows, name)[is_step] for name in ("visible", "keys", "offsets", "sequence")}
    produced = None if rows.produced is None else rows.produced[is_step]
    return replace(rows, weights=rows.weights[:, :, is_step], index=steps[is_step], produced=produced, **kept)


def _nearest(cells: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the marked column of each row (N, S) bool nearest to given columns (…, N) int64; -1 if none is marked."""
    indices = torch.arange(cells.shape[-1], device=cells.device)
    distance = (indices - columns[..., None]).abs().masked_fill(~cells, cells.shape[-1])
    return distance.argmin(dim=-1).masked_fill(~cells.any(dim=-1), NO_SOURCE)
