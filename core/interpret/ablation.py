"""Head importance by ablation: exact match on held-out pairs without each head, and without each whole layer."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args
from weakref import WeakKeyDictionary

import torch
from pydantic import BaseModel, ConfigDict, Field

from core.evaluation.outputs import decode_padded
from core.evaluation.passes import evaluation_mode, sequences_per_pass
from core.interpret.interventions import NO_INTERVENTIONS, Ablation, Interventions
from core.models import Seq2Seq
from core.models.hooks import hooks
from core.models.seq2seq import Block, Head
from core.storage.atomic import write_atomically
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.storage.text_checksum import has_changed, with_checksum, without_checksum
from core.tasks import Batch, Task, fixed_pairs
from core.text.vocab import PAD_ID

MEAN_SEQUENCES = 500  # held-out sequences for the mean outputs that replace an ablated head's output
MEAN_CHUNK = 100  # sequences with head outputs in memory at the same time
_Fraction = Annotated[float, Field(ge=0, le=1)]
_log = logging.getLogger(__name__)
_means: WeakKeyDictionary[Seq2Seq, Mapping[Head, torch.Tensor]] = WeakKeyDictionary()


class AblatedHead(BaseModel):
    """Exact match of a model without one head, or without all heads of a layer.

    Attributes:
        block: "encoder", "decoder" or "cross".
        layer: numbered from 1.
        head: numbered from 1; 0 stands for all heads of the layer together.
        exact_match: fraction of sequences generated exactly, EOS included, 0-1.
        intact: the same fraction with all heads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    block: Block
    layer: int
    head: int
    exact_match: _Fraction
    intact: _Fraction

    @property
    def change(self) -> float:
        """Exact match with the ablation minus without it: negative if the head is needed."""
        return self.exact_match - self.intact


class AblationGrid(BaseModel):
    """The ablation of every head of a model, with the step of its weights and how it was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    sequences: int
    ablation: Ablation
    cells: tuple[AblatedHead, ...]


class _File(BaseModel):
    """The content of an ``ablate.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["attention-lab-ablation-1"] = "attention-lab-ablation-1"
    grids: tuple[AblationGrid, ...] = ()


def grid_cells(heads: Iterable[Head]) -> list[tuple[Block, int, int]]:
    """Return the cells of a grid as (block, layer, head): each head of a layer, then head 0 for all of them."""
    layers = dict.fromkeys((head.block, head.layer) for head in heads)
    numbers = {layer: [head.head for head in heads if (head.block, head.layer) == layer] for layer in layers}
    return [(*layer, number) for layer in layers for number in (*numbers[layer], 0)]


def ablation_grid(model: Seq2Seq, task: Task, pairs: Batch, *, ablation: Ablation = "zero") -> Iterator[AblatedHead]:
    """Measure a model without each head in turn, and without each layer's heads; its weights are unchanged.

    Pairs are decoded greedily in padded batches, as ``evaluate`` does. Results come in the order of ``grid_cells``;
    the iteration may be stopped after any of them.

    Args:
        ablation: "zero" replaces a head's output with zeros (Michel et al. 2019, section 2.2); "mean" with its mean
            output over the pairs, which is closer to the usual input of later layers (Wang et al. 2023, section 2.2).

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to measure heads on")
    means = mean_head_outputs(model, pairs) if ablation == "mean" else None
    intact = exact_match_with(model, task, pairs, NO_INTERVENTIONS)
    for block, layer, number in grid_cells(model.heads):
        heads = [head for head in model.heads if (head.block, head.layer) == (block, layer)]
        ablated = tuple(head for head in heads if number in (0, head.head))
        exact_match = exact_match_with(model, task, pairs, Interventions(ablated, means))
        yield AblatedHead(block=block, layer=layer, head=number, exact_match=exact_match, intact=intact)


def cached_grid(
    path: Path, model: Seq2Seq, task: Task, pairs: Batch, *, step: int, ablation: Ablation = "zero"
) -> Iterator[AblatedHead]:
    """Return ``ablation_grid``, read from a file if it was measured before; a completed grid is saved there.

    Args:
        path: the file, such as ``RunFolder.ablation``. Grids of other steps in it are deleted.
        pairs: the first N of the run's task.
        step: of the model's weights.
    """
    known = load_grid(path, model.heads, step=step, sequences=len(pairs), ablation=ablation)
    if known is not None:
        yield from known.cells
        return
    cells = []
    for cell in ablation_grid(model, task, pairs, ablation=ablation):
        cells.append(cell)
        yield cell
    save_grid(path, AblationGrid(step=step, sequences=len(pairs), ablation=ablation, cells=tuple(cells)))


def ablation_rows(cells: Iterable[AblatedHead]) -> list[dict[str, Any]]:
    """Return one dict per cell: block, layer, head (0 is the whole layer), exact_match (0-1) and change."""
    names = ("block", "layer", "head", "exact_match", "change")
    return [{name: getattr(cell, name) for name in names} for cell in cells]


def parse_ablation(text: Any) -> Ablation:
    """Return "zero" or "mean" if it is one of them; InputError otherwise."""
    if text not in get_args(Ablation):
        raise InputError(f"ablation={short_repr(text)} is not one of {', '.join(get_args(Ablation))}")
    return cast(Ablation, text)


def parse_interventions(
    model: Seq2Seq, task: Task, *, ablate: Iterable[str] = (), patterns: Iterable[str] = (), ablation: Ablation = "zero"
) -> Interventions:
    """Parse interventions as ``Interventions.parse`` does, and compute the mean outputs that a mean ablation needs.

    Args:
        model: must not be trained afterwards, because the means are computed once.
        task: provides the held-out pairs for the means.
        ablate: names of heads, layers or blocks to ablate.
        patterns: of cross-attention heads, ``HEAD=PATTERN``.
        ablation: replacement of an ablated head's output.

    Raises:
        InputError: the model lacks a head, or a name, pattern or kind of ablation is not valid.
    """
    ablation = parse_ablation(ablation)
    interventions = Interventions.parse(model.heads, ablate=ablate, patterns=patterns)
    if ablation == "zero" or not interventions.ablated:
        return interventions
    if model not in _means:
        _means[model] = mean_head_outputs(model, fixed_pairs(task, MEAN_SEQUENCES, split="test"))
    return replace(interventions, means=_means[model])


@torch.no_grad()
def mean_head_outputs(model: Seq2Seq, pairs: Batch) -> dict[Head, torch.Tensor]:
    """Return each head's mean output, (K,) float, over all tokens but PAD of some pairs, under teacher forcing.

    Raises:
        ValueError: there are no pairs.
    """
    if not len(pairs):
        raise ValueError("no sequences to take means over")
    sums: dict[Head, torch.Tensor] = {}
    counts: dict[Head, int] = {}
    with evaluation_mode(model):
        chunk_size = min(MEAN_CHUNK, sequences_per_pass(model, max(pairs.src.shape[1], pairs.tgt_in.shape[1])))
        for start in range(0, len(pairs), chunk_size):
            chunk = pairs[start : start + chunk_size]
            for head, outputs in _head_outputs(model, chunk).items():
                sums[head] = sums.get(head, 0) + outputs.sum(dim=0)
                counts[head] = counts.get(head, 0) + len(outputs)
    return {head: total / counts[head] for head, total in sums.items()}


def load_grid(
    path: Path, heads: Sequence[Head], *, step: int, sequences: int, ablation: Ablation
) -> AblationGrid | None:
    """Return the saved grid of these heads with exactly these settings, or None."""
    for grid in _read(path).grids:
        cells = [(cell.block, cell.layer, cell.head) for cell in grid.cells]
        if (grid.step, grid.sequences, grid.ablation) == (step, sequences, ablation) and cells == grid_cells(heads):
            return grid
    return None


def latest_grid(path: Path, heads: Sequence[Head], *, ablation: Ablation) -> AblationGrid | None:
    """Return the saved grid of these heads with the latest step and the most sequences, or None."""
    measured = {(grid.step, grid.sequences) for grid in _read(path).grids if grid.ablation == ablation}
    step, sequences = max(measured, default=(-1, 0))
    return load_grid(path, heads, step=step, sequences=sequences, ablation=ablation)


def save_grid(path: Path, grid: AblationGrid) -> None:
    """Add a grid to a file, keeping other grids of the same step; if the disk fails, only a warning is logged."""
    others = [
        known
        for known in _read(path).grids
        if known.step == grid.step and (known.sequences, known.ablation) != (grid.sequences, grid.ablation)
    ]
    try:
        write_atomically(path, with_checksum(_File(grids=(*others, grid)).model_dump_json(indent=1)))
    except OSError as error:
        _log.warning("%s: cannot save the head ablation, it will be measured again: %s", path, error)


def _read(path: Path) -> _File:
    """Read a file of grids; a missing or damaged file counts as empty, since grids can be measured again."""
    try:
        content = path.read_bytes()
        if has_changed(content):
            raise ValueError("it does not match its checksum")
        return _File.model_validate_json(without_checksum(content))
    except (OSError, ValueError) as error:
        if path.exists():
            _log.warning("%s is ignored: %s", path, error)
        return _File()


def exact_match_with(model: Seq2Seq, task: Task, pairs: Batch, interventions: Interventions) -> float:
    """Return the exact match of a model under interventions, decoding greedily, 0-1."""
    with evaluation_mode(model), interventions.applied_to(model):
        return decode_padded(model, pairs, max_steps=pairs.tgt_out.shape[1]).exact_match(task)


def _head_outputs(model: Seq2Seq, pairs: Batch) -> dict[Head, torch.Tensor]:
    """Return every head's outputs under teacher forcing, (N, K) each, for all tokens that are not PAD."""
    calls: dict[tuple[Block, int], list[torch.Tensor]] = {key: [] for key in model.attention}
    with hooks({model.attention[key].hook_z.name: calls[key].append for key in calls}):
        model(pairs.src, pairs.tgt_in)
    outputs = {key: torch.cat(of_layer, dim=2) for key, of_layer in calls.items()}  # (B, H, T, K) each
    # A decoder-only model reads the source first, so its outputs for the source come before those of its steps.
    tokens = torch.cat([pairs.src, pairs.tgt_out], dim=1)
    by_head = {}
    for head in model.heads:
        of_head = outputs[head.block, head.layer][:, head.head - 1]
        read = pairs.src if head.block == "encoder" else tokens[:, -of_head.shape[1] :]
        by_head[head] = of_head[read != PAD_ID]
    return by_head
