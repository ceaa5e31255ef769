"""What attention shows, in numbers: how much of it falls where the task says the answer comes from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from core.decoding import Decoded
from core.tasks import NO_SOURCE, Batch, Task
from core.vocab import BOS, BOS_ID, EOS, EOS_ID, PAD_ID


@dataclass(frozen=True)
class HeadScore:
    """How well one head that looks at the source points at the token each answer token comes from.

    Attributes:
        layer, head: numbered from 1.
        share: mean attention weight on the true source token, at the step that produces the token, 0-1.
        hits: share of these steps whose largest weight is on the true source token, 0-1.
        uniform: what ``share`` would be if every source token got the same weight.
    """

    layer: int
    head: int
    share: float
    hits: float
    uniform: float


def true_cells(alignment: Sequence[int], *, steps: int) -> list[tuple[int, int]]:
    """Return the (step, source column) cells of a cross-attention map where the answer's symbols come from."""
    return [(step, place + 1) for step, place in enumerate(alignment[:steps]) if place != NO_SOURCE]


def true_columns(task: Task, pairs: Batch, *, steps: int) -> torch.Tensor:
    """Say which source column each decoding step should look at.

    Returns:
        (B, steps) int64 columns of ``pairs.src``; -1 at steps with no source of their own, EOS among them.
    """
    columns = torch.full((len(pairs), steps), NO_SOURCE)  # filled row by row, so on the CPU first
    for row, ids in enumerate(pairs.src.tolist()):
        symbols = task.src_vocab.decode([index for index in ids if index not in (PAD_ID, BOS_ID, EOS_ID)])
        places = torch.tensor(task.alignment(symbols)[:steps], dtype=torch.int64)
        columns[row, : len(places)] = places
    # BOS stands before the symbols.
    return torch.where(columns == NO_SOURCE, NO_SOURCE, columns + 1).to(pairs.src.device)


def score_heads(weights: torch.Tensor, columns: torch.Tensor, src: torch.Tensor) -> list[HeadScore]:
    """Score every head's attention over the source against the true alignment.

    This is the expected-pattern score: a head that copies every token from where it stands has share 1; one that
    looks everywhere alike has the uniform share.

    Args:
        weights: (L, B, H, T, S) float, recorded while decoding.
        columns: (B, T) int64 from ``true_columns``; steps marked -1 do not count.
        src: (B, S) int64, to count the keys that are not PAD.

    Raises:
        ValueError: no step has a true column.
    """
    counted = columns != NO_SOURCE
    if not counted.any():
        raise ValueError("no decoding step has a true source token to score against")
    index = columns.clamp(min=0)[None, :, None, :, None].expand(*weights.shape[:-1], 1)
    on_true = weights.gather(-1, index).squeeze(-1)  # (L, B, H, T)
    hit = weights.argmax(dim=-1) == columns[None, :, None, :]
    steps = counted.sum()
    share = (on_true * counted[None, :, None, :]).sum(dim=(1, 3)) / steps  # (L, H)
    hits = (hit & counted[None, :, None, :]).sum(dim=(1, 3)) / steps
    keys = (src != PAD_ID).sum(dim=1, keepdim=True)
    uniform = ((1.0 / keys) * counted).sum().item() / steps.item()
    layers, heads = share.shape
    return [
        HeadScore(layer + 1, head + 1, share[layer, head].item(), hits[layer, head].item(), uniform)
        for layer in range(layers)
        for head in range(heads)
    ]


def score_decoded(task: Task, pairs: Batch, decoded: Decoded) -> list[HeadScore]:
    """Score the attention over the source of a decode that recorded its maps; [] where there is nothing to score."""
    weights = None if decoded.maps is None else decoded.maps.over_source(pairs.src.shape[1])
    if weights is None:
        return []
    columns = true_columns(task, pairs, steps=decoded.tokens.shape[1])
    columns = columns.masked_fill(decoded.tokens == PAD_ID, NO_SOURCE)  # after its EOS a sequence makes no steps
    if (columns == NO_SOURCE).all():
        return []
    return score_heads(weights, columns, pairs.src)


def best_of_layer(scores: Sequence[HeadScore], layer: int) -> HeadScore:
    """Return the head of a layer with the largest share on the true source tokens."""
    return max((score for score in scores if score.layer == layer), key=lambda score: score.share)


def step_labels(output: Sequence[str]) -> tuple[list[str], list[str]]:
    """Name the rows of a decoder or cross-attention map: what each step produced, and what it read before."""
    return list(output), [BOS, *output[:-1]]


def frame_labels(symbols: Sequence[str]) -> list[str]:
    """Name the source positions: BOS, the symbols, EOS."""
    return [BOS, *symbols, EOS]


def step_table(task: Task, pairs: Batch, decoded: Decoded) -> pd.DataFrame:
    """Tell for every head and every step of a decode where in the source it looked and what came of it.

    Args:
        pairs: sources of one length, without PAD, and their references.
        decoded: with maps.

    Returns:
        A row a (layer, head, sequence, step), all but ``sequence`` and ``step`` numbered from 1, with the columns

        - ``source_length``: symbols in the input;
        - ``length``: symbols in the answer; the step of that number is the one to write EOS at;
        - ``true_column``: the source column the step's token comes from, -1 where there is none;
        - ``looked_at``: the column with the largest weight; ``share``: the weight on the true one, 0-1;
        - ``entropy``: of the weights over the source, divided by the log of the number of its tokens, 0-1;
        - ``is_right``: whether the step wrote the token of the reference.
    """
    weights = decoded.maps.over_source(pairs.src.shape[1])  # (L, B, H, T, S)
    spread = weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    layers, _, heads, steps, keys = weights.shape
    columns = true_columns(task, pairs, steps=steps)
    reference = torch.nn.functional.pad(pairs.tgt_out, (0, max(0, steps - pairs.tgt_out.shape[1])))[:, :steps]
    # A step is made as long as no EOS was written before it.
    made = (decoded.tokens == EOS_ID).cumsum(dim=1) - (decoded.tokens == EOS_ID).long() == 0
    index = columns.clamp(min=0)[None, :, None, :, None].expand(layers, -1, heads, -1, 1)
    of_heads = {
        "share": weights.gather(-1, index).squeeze(-1).masked_fill(columns[None, :, None] == NO_SOURCE, 0.0),
        "looked_at": weights.argmax(dim=-1),
        "entropy": torch.special.entr(spread).sum(dim=-1) / math.log(keys),
    }
    of_steps = {
        "true_column": columns,
        "is_right": decoded.tokens == reference,
        "length": (pairs.tgt_out != PAD_ID).sum(dim=1, keepdim=True).expand(-1, steps) - 1,
    }
    layer, sequence, head, step = made[None, :, None].expand(layers, -1, heads, -1).nonzero(as_tuple=True)
    table = {"layer": layer + 1, "head": head + 1, "sequence": sequence, "step": step}
    table |= {name: values[layer, sequence, head, step] for name, values in of_heads.items()}
    table |= {name: values[sequence, step] for name, values in of_steps.items()}
    return pd.DataFrame({name: values.cpu().numpy() for name, values in table.items()}).assign(source_length=keys - 2)
