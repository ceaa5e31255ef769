"""What each head of a run is worth: measured cell by cell, kept with the run, as plain data."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from core.analysis.knock_out import KnockedOut, cells_of, knock_out_table, latest_grid, remembered_grid
from core.models.heads import Ablation, Head
from core.run_folder import RunError
from core.runs import Runs
from core.runs.published import Published
from core.tasks import Batch, fixed_pairs
from ui.head_edits import heads_in
from ui.views import BLOCK_NAMES

SEQUENCES = 500  # three seconds for the shipped model on one core


def knocked_out(runs: Runs, run: str, ablation: Ablation) -> dict[str, Any]:
    """Measure a run without each head and each layer and return it all as plain data."""
    asked = Measuring.of(runs, run, ablation)
    cells = list(asked.cells())
    return {
        "run": run,
        "step": asked.published.step,
        "sequences": len(asked.pairs),
        "ablation": ablation,
        "exact_match": cells[0].intact,
        "without": knock_out_table(cells).to_dict("records"),
    }


@dataclass(frozen=True)
class Measuring:
    """A grid to be measured, or remembered."""

    published: Published
    pairs: Batch
    path: Path
    ablation: Ablation

    @classmethod
    def of(cls, runs: Runs, run: str, ablation: Ablation) -> "Measuring":
        published = runs.published(run)
        pairs = fixed_pairs(published.task, SEQUENCES, split="test")
        return cls(published, pairs, runs.folder(run).knock_out, ablation)

    def cells(self) -> Iterator[KnockedOut]:
        model, step = self.published.model, self.published.step
        return remembered_grid(self.path, model, self.pairs, step=step, ablation=self.ablation)

    def shown(self) -> Iterator[dict[str, Any]]:
        """Return the grid as it fills."""
        names = self.published.model.heads
        show = partial(grid_value, self.published.run, names, sequences=len(self.pairs), step=self.published.step)
        cells: list[KnockedOut] = []
        yield show(cells)
        started, total = time.monotonic(), len(cells_of(names))
        for cell in self.cells():
            cells.append(cell)
            each = (time.monotonic() - started) / len(cells)
            yield show(cells, seconds_left=each * (total - len(cells)))


def remembered(runs: Runs, run: str, ablation: Ablation) -> dict[str, Any]:
    """Return what was measured of a run and is kept with it, or the same cells without figures."""
    names = heads_in(runs.preset(run))
    known = latest_grid(runs.folder(run).knock_out, names, ablation=ablation)
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
    cells: Sequence[KnockedOut],
    *,
    sequences: int = 0,
    step: int = 0,
    seconds_left: float | None = None,
) -> dict[str, Any]:
    """Return a grid, of which cells may still be missing, for the heads component; of a lone head, once."""
    known = {(cell.block, cell.layer, cell.head): cell.exact_match for cell in cells}
    every = cells_of(names)
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
        return runs.published(run).step
    except RunError:
        return None
