"""What each head of a run is worth: measured cell by cell, kept with the run, as plain data."""

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
from core.models.heads import Head
from core.runs import RunError
from core.runs.load import LoadedRun
from core.server import Runs
from core.tasks import Batch, fixed_pairs
from ui.attention_blocks import BLOCK_NAMES
from ui.components.component import component
from ui.interventions import heads_in


def head_importance(*, elem_id: str = "heads") -> gr.HTML:
    """Exact match without each head, as a grid of buttons. Value: ``grid_value``.

    Props: ``interventions``, the current interventions; ``measuring``, whether more cells will follow.
    Event: ``.toggle(fn)`` with ``evt.name``, such as ``cross.2.1`` or ``cross.2``.
    """
    return component("head_importance", elem_id=elem_id, interventions={"out": [], "forced": {}}, measuring=False)


SEQUENCES = 500  # three seconds for the shipped model on one core


def ablated(runs: Runs, run: str, ablation: Ablation) -> dict[str, Any]:
    """Measure a run without each head and each layer and return it all as plain data."""
    asked = Measuring.of(runs, run, ablation)
    cells = list(asked.cells())
    return {
        "run": run,
        "step": asked.loaded.step,
        "sequences": len(asked.pairs),
        "ablation": ablation,
        "exact_match": cells[0].intact,
        "without": ablation_rows(cells),
    }


@dataclass(frozen=True)
class Measuring:
    """A grid to be measured, or remembered."""

    loaded: LoadedRun
    pairs: Batch
    path: Path
    ablation: Ablation

    @classmethod
    def of(cls, runs: Runs, run: str, ablation: Ablation) -> "Measuring":
        loaded = runs.loaded(run)
        pairs = fixed_pairs(loaded.task, SEQUENCES, split="test")
        return cls(loaded, pairs, runs.folder(run).ablate, ablation)

    def cells(self) -> Iterator[AblatedHead]:
        model, step = self.loaded.model, self.loaded.step
        return cached_grid(self.path, model, self.pairs, step=step, ablation=self.ablation)

    def shown(self) -> Iterator[dict[str, Any]]:
        """Return the grid as it fills."""
        names = self.loaded.model.heads
        show = partial(grid_value, self.loaded.run, names, sequences=len(self.pairs), step=self.loaded.step)
        cells: list[AblatedHead] = []
        yield show(cells)
        started, total = time.monotonic(), len(grid_cells(names))
        for cell in self.cells():
            cells.append(cell)
            each = (time.monotonic() - started) / len(cells)
            yield show(cells, seconds_left=each * (total - len(cells)))


def remembered(runs: Runs, run: str, ablation: Ablation) -> dict[str, Any]:
    """Return what was measured of a run and is kept with it, or the same cells without figures."""
    names = heads_in(runs, run)
    known = latest_grid(runs.folder(run).ablate, names, ablation=ablation)
    if known is None:
        return grid_value(run, names, [])
    value = grid_value(run, names, known.cells, sequences=known.sequences, step=known.step)
    now = _step_now(runs, run)
    if now is not None and now != known.step:
        value["note"] = f"The run answers with its weights after step {now} now; measure again for those."
    return value


def grid_value(
    run: str,
    names: Sequence[Head],
    cells: Sequence[AblatedHead],
    *,
    sequences: int = 0,
    step: int = 0,
    seconds_left: float | None = None,
) -> dict[str, Any]:
    """Return a grid, of which cells may still be missing, for the heads component; of a lone head, once."""
    known = {(cell.block, cell.layer, cell.head): cell.exact_match for cell in cells}
    every = grid_cells(names)
    rows = [(layer, list(members)) for layer, members in groupby(every, key=lambda cell: cell[:2])]
    return {
        "run": run,
        "intact": cells[0].intact if cells else None,
        "sequences": sequences,
        "step": step,
        "measured": len(cells),
        "total": len(every),
        "seconds_left": seconds_left,
        "note": "",
        "rows": [
            {
                "label": f"{BLOCK_NAMES[block]}, layer {layer}",
                "cells": [
                    {
                        "name": f"{block}.{layer}.{head}" if head else f"{block}.{layer}",
                        "label": str(head or "all"),
                        "exact_match": known.get((block, layer, head)),
                    }
                    for *_, head in members
                    if head or len(members) > 2
                ],
            }
            for (block, layer), members in rows
        ],
    }


def _step_now(runs: Runs, run: str) -> int | None:
    """Return the step of the weights that a run answers with; None if it has none."""
    try:
        return runs.loaded(run).step
    except RunError:
        return None
