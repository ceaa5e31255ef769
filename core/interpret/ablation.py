"""What each attention head is worth: exact match on held-out pairs without it, head by head and layer by layer."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, get_args
from weakref import WeakKeyDictionary

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.evaluation.accuracy import count_exact, evaluation_mode
from core.generation import GREEDY
from core.models import Seq2Seq
from core.models.heads import NO_INTERVENTIONS, Ablation, Block, Head, Interventions
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from core.tasks import Batch, Task, fixed_pairs
from core.text.vocab import PAD_ID

MEAN_SEQUENCES = 500  # held-out ones, whose mean output a knocked-out head may give
MEAN_CHUNK = 100  # sequences whose heads' outputs are held at once
_Share = Annotated[float, Field(ge=0, le=1)]
_log = logging.getLogger(__name__)
_means: WeakKeyDictionary[Seq2Seq, Mapping[Head, torch.Tensor]] = WeakKeyDictionary()


class AblatedHead(BaseModel):
    """How much a model gets right without a head.

    Attributes:
        head: numbered from 1, as layers are; 0 stands for all heads of the layer together.
        exact_match: share of sequences that free-running decoding writes exactly, its own EOS included, 0-1.
        intact: the same share of the model with all its heads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    block: Block
    layer: int
    head: int
    exact_match: _Share
    intact: _Share

    @property
    def change(self) -> float:
        """What knocking out adds to exact match: below 0 where the head is needed."""
        return self.exact_match - self.intact


class AblationGrid(BaseModel):
    """A whole grid and what it depends on: the step its weights are from, and how it was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    sequences: int
    ablation: Ablation
    cells: tuple[AblatedHead, ...]


class _File(BaseModel):
    """What is in a ``ablate.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["attention-lab-ablation-1"] = "attention-lab-ablation-1"
    grids: tuple[AblationGrid, ...] = ()


def cells_of(heads: Iterable[Head]) -> list[tuple[Block, int, int]]:
    """Return what a grid knocks out, as (block, layer, head): a layer's heads one by one, then, as head 0, all."""
    layers = dict.fromkeys((head.block, head.layer) for head in heads)
    numbers = {layer: [head.head for head in heads if (head.block, head.layer) == layer] for layer in layers}
    return [(*layer, number) for layer in layers for number in (*numbers[layer], 0)]


def ablation_grid(model: Seq2Seq, pairs: Batch, *, ablation: Ablation = "zero") -> Iterator[AblatedHead]:
    """Measure a model without each of its heads in turn, and without each layer's; its weights stay as they are.

    Pairs are decoded greedily in padded batches, as ``evaluate`` does. The results come in the order of ``cells_of``
    the model's heads; whoever reads them may stop between any two.

    Args:
        ablation: "zero" puts zeros in place of a head's output (Michel et al. 2019, section 2.2); "mean" puts its mean
            output over the pairs there, which is nearer to what later layers know (Wang et al. 2023, section 2.2).

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to measure heads on")
    means = head_means(model, pairs) if ablation == "mean" else None
    intact = _exact_match(model, pairs, NO_INTERVENTIONS)
    for block, layer, number in cells_of(model.heads):
        heads = [head for head in model.heads if (head.block, head.layer) == (block, layer)]
        chosen = tuple(head for head in heads if number in (0, head.head))
        exact_match = _exact_match(model, pairs, Interventions(chosen, means))
        yield AblatedHead(block=block, layer=layer, head=number, exact_match=exact_match, intact=intact)


def remembered_grid(
    path: Path, model: Seq2Seq, pairs: Batch, *, step: int, ablation: Ablation = "zero"
) -> Iterator[AblatedHead]:
    """Do as ``ablation_grid``, but only once: a grid that is read to its end is kept in a file.

    Args:
        path: the file, such as ``RunFolder.ablate``. What it says of other steps is forgotten.
        pairs: the first so many of the run's task.
        step: that the model's weights are from.
    """
    known = load_grid(path, model.heads, step=step, sequences=len(pairs), ablation=ablation)
    if known is not None:
        yield from known.cells
        return
    cells = []
    for cell in ablation_grid(model, pairs, ablation=ablation):
        cells.append(cell)
        yield cell
    save_grid(path, AblationGrid(step=step, sequences=len(pairs), ablation=ablation, cells=tuple(cells)))


def ablation_table(cells: Iterable[AblatedHead]) -> pd.DataFrame:
    """Return a row a cell: block, layer, head (0 stands for the whole layer), exact_match (0-1) and its change."""
    columns = ["block", "layer", "head", "exact_match", "change"]
    return pd.DataFrame([[getattr(cell, column) for column in columns] for cell in cells], columns=columns)


def read_ablation(text: str) -> Ablation:
    """Return what is to stand in for a head's output; InputError if it is neither zero nor mean."""
    if text not in get_args(Ablation):
        raise InputError(f"ablation={text!r:.60} is not one of {', '.join(get_args(Ablation))}")
    return text


def read_edits(
    model: Seq2Seq, task: Task, *, ablate: Iterable[str] = (), force: Iterable[str] = (), ablation: Ablation = "zero"
) -> Interventions:
    """Read what is to be done to a model's heads, as ``Interventions.parse`` does, and take the means that it needs.

    Args:
        model: with weights that stay as they are; its means are taken once.

    Raises:
        InputError: something of it cannot be done; the message says what can.
    """
    interventions = Interventions.parse(model.heads, ablate=ablate, force=force)
    if ablation == "zero" or not interventions.ablated:
        return interventions
    if model not in _means:
        _means[model] = head_means(model, fixed_pairs(task, MEAN_SEQUENCES, split="test"))
    return replace(interventions, means=_means[model])


@torch.no_grad()
def head_means(model: Seq2Seq, pairs: Batch) -> dict[Head, torch.Tensor]:
    """Return each head's mean output, (K,) float, over every token of some pairs but PAD, read under teacher forcing.

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to take means over")
    sums: dict[Head, torch.Tensor] = {}
    counts: dict[Head, int] = {}
    with evaluation_mode(model):
        for start in range(0, len(pairs), MEAN_CHUNK):
            chunk = pairs[start : start + MEAN_CHUNK]
            for head, outputs in _outputs(model, chunk).items():
                sums[head] = sums.get(head, 0) + outputs.sum(dim=0)
                counts[head] = counts.get(head, 0) + len(outputs)
    return {head: total / counts[head] for head, total in sums.items()}


def load_grid(
    path: Path, heads: Sequence[Head], *, step: int, sequences: int, ablation: Ablation
) -> AblationGrid | None:
    """Return the grid of these heads that a file holds; None if it holds none measured in this way."""
    for grid in _read(path).grids:
        cells = [(cell.block, cell.layer, cell.head) for cell in grid.cells]
        if (grid.step, grid.sequences, grid.ablation) == (step, sequences, ablation) and cells == cells_of(heads):
            return grid
    return None


def latest_grid(path: Path, heads: Sequence[Head], *, ablation: Ablation) -> AblationGrid | None:
    """Return the grid of these heads that a file holds, of whatever step, on the most sequences; None without any."""
    measured = {(grid.step, grid.sequences) for grid in _read(path).grids if grid.ablation == ablation}
    step, sequences = max(measured, default=(-1, 0))
    return load_grid(path, heads, step=step, sequences=sequences, ablation=ablation)


def save_grid(path: Path, grid: AblationGrid) -> None:
    """Put a grid into a file, beside what that has of the same step; a disk that takes nothing is only logged."""
    others = [
        known
        for known in _read(path).grids
        if known.step == grid.step and (known.sequences, known.ablation) != (grid.sequences, grid.ablation)
    ]
    try:
        write_atomically(path, _File(grids=(*others, grid)).model_dump_json(indent=1).encode())
    except OSError as error:
        _log.warning("%s: heads are measured anew next time, since this cannot be kept: %s", path, error)


def _read(path: Path) -> _File:
    """Read a file of grids; one that is missing or damaged has none: they can be measured anew."""
    try:
        return _File.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        if path.exists():
            _log.warning("%s is left out: %s", path, error)
        return _File()


def _exact_match(model: Seq2Seq, pairs: Batch, interventions: Interventions) -> float:
    with evaluation_mode(model):
        return count_exact(model, pairs, GREEDY, max_steps=pairs.tgt_out.shape[1], interventions=interventions) / len(
            pairs
        )


def _outputs(model: Seq2Seq, pairs: Batch) -> dict[Head, torch.Tensor]:
    """Return every head's outputs, (N, K) a head, for all the tokens that are not PAD."""
    interventions = Interventions(kept={})
    model(pairs.src, pairs.tgt_in, interventions=interventions)
    kept = {layer: torch.cat(calls, dim=2) for layer, calls in interventions.kept.items() if calls}  # (B, H, T, K) each
    # What a decoder made of the source, if that is where it read it, comes before its steps.
    tokens = torch.cat([pairs.src, pairs.tgt_out], dim=1)
    outputs = {}
    for head in model.heads:
        of_head = kept[head.block, head.layer][:, head.head - 1]
        read = pairs.src if head.block == "encoder" else tokens[:, -of_head.shape[1] :]
        outputs[head] = of_head[read != PAD_ID]
    return outputs
