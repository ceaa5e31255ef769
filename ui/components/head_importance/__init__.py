"""Head importance: exact match with each head ablated, measured cell by cell and saved with the run."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import gradio as gr

from core.interpret.ablation import AblatedHead, ablation_rows, cached_grid, grid_cells, latest_grid
from core.interpret.interventions import Ablation
from core.interpret.trained import Trained
from core.models.seq2seq import Head
from core.runs import Run, RunError
from core.tasks import Batch, fixed_pairs
from ui.attention_blocks import BLOCK_NAMES
from ui.components.component import component
from ui.interventions import heads_of_run

SEQUENCES = 500  # held-out inputs; three seconds for the shipped model on one core


def head_importance() -> gr.HTML:
    """Build the component, a grid of buttons. Value: ``grid_value``.

    Props: ``interventions``, the current ones as ``{"ablated": [name], "patterns": {name: pattern}}``; ``measuring``,
    whether more cells will follow.
    Event: ``.toggle(fn)`` with ``evt.name``, such as ``cross.2.1`` or ``cross.2``.
    """
    none: dict[str, Any] = {"ablated": [], "patterns": {}}
    return component("head_importance", elem_id="heads", events=["toggle"], interventions=none, measuring=False)


def measure_heads(run: Run, ablate_with: Ablation) -> dict[str, Any]:
    """Measure a run with each head and each layer ablated; return the result as plain data."""
    measurement = Measurement.of(run, ablate_with)
    cells = list(measurement.cells())
    return {
        "run": run.name,
        "step": measurement.loaded.step,
        "sequences": len(measurement.pairs),
        "ablate_with": ablate_with,
        "exact_match": cells[0].intact,
        "heads": ablation_rows(cells),
    }


@dataclass(frozen=True)
class Measurement:
    """The head importance of a run, to be measured or read from its folder.

    Attributes:
        path: file of the saved results.
    """

    loaded: Trained
    pairs: Batch
    path: Path
    ablate_with: Ablation

    @classmethod
    def of(cls, run: Run, ablate_with: Ablation) -> "Measurement":
        """Load a run for measuring."""
        loaded = run.trained()
        pairs = fixed_pairs(loaded.task, SEQUENCES, split="test")
        return cls(loaded, pairs, run.folder.ablation, ablate_with)

    def cells(self) -> Iterator[AblatedHead]:
        """Yield the cells, measured or from the saved file."""
        model, step = self.loaded.model, self.loaded.step
        return cached_grid(self.path, model, self.loaded.task, self.pairs, step=step, ablation=self.ablate_with)

    def values(self) -> Iterator[dict[str, Any]]:
        """Yield the component's value, first empty and then after each measured cell."""
        heads = self.loaded.model.heads
        value = partial(grid_value, self.loaded.run, heads, sequences=len(self.pairs), step=self.loaded.step)
        cells: list[AblatedHead] = []
        yield value(cells)
        started, total = time.monotonic(), len(grid_cells(heads))
        for cell in self.cells():
            cells.append(cell)
            per_cell = (time.monotonic() - started) / len(cells)
            yield value(cells, seconds_left=per_cell * (total - len(cells)))


def saved_value(run: Run, ablate_with: Ablation) -> dict[str, Any]:
    """Return the component's value with a run's saved head importance, or with empty cells."""
    heads = heads_of_run(run)
    saved = latest_grid(run.folder.ablation, heads, ablation=ablate_with)
    if saved is None:
        return grid_value(run.name, heads, [])
    value = grid_value(run.name, heads, saved.cells, sequences=saved.sequences, step=saved.step)
    current = _current_step(run)
    if current is not None and current != saved.step:
        value["note"] = f"The run now uses its weights after step {current:,}; measure again for those."
    return value


def grid_value(
    run: str,
    heads: Sequence[Head],
    cells: Sequence[AblatedHead],
    *,
    sequences: int = 0,
    step: int = 0,
    seconds_left: float | None = None,
) -> dict[str, Any]:
    """Return the component's value; cells that are not measured yet have ``exact_match`` None.

    A layer with a single head has one cell, not one for the head and one for the layer.
    """
    measured = {(cell.block, cell.layer, cell.head): cell.exact_match for cell in cells}
    names = grid_cells(heads)
    rows = [(layer, list(members)) for layer, members in groupby(names, key=lambda cell: cell[:2])]
    return {
        "run": run,
        "intact": cells[0].intact if cells else None,
        "sequences": sequences,
        "step": step,
        "measured": len(cells),
        "total": len(names),
        "seconds_left": seconds_left,
        "note": "",
        "rows": [
            {
                "label": f"{BLOCK_NAMES[block]}, layer {layer}",
                "cells": [
                    {
                        "name": f"{block}.{layer}.{head}" if head else f"{block}.{layer}",
                        "label": str(head or "all"),
                        "exact_match": measured.get((block, layer, head)),
                    }
                    for *_, head in members
                    if head or len(members) > 2
                ],
            }
            for (block, layer), members in rows
        ],
    }


def _current_step(run: Run) -> int | None:
    """Return the training step of the weights that a run decodes with; None if it has none."""
    try:
        return run.trained().step
    except RunError:
        return None
