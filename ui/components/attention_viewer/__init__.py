"""What the Attention tab is given: the maps of a decode or of a training, packed for the browser."""

import base64
import threading
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import gradio as gr
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.interpret.snapshots import PackedMaps, Snapshot, SnapshotOutput
from core.server import Runs
from core.server.access import display_name
from core.storage.errors import LabError
from core.text.vocab import BOS, EOS
from ui.attention_blocks import Block, described, source_block
from ui.components.component import component
from ui.current_decode import Seen, true_cells_of
from ui.run_info import progress_since


def attention_viewer(runs: Runs, *, elem_id: str = "viewer") -> gr.HTML:
    """All heads of the current decode, or of fixed inputs at each training step; one head drawn large.

    Value: ``attention_value``, or ``{"run": id, "decode": None, "open": {}}`` where there is no decode. The selected
    view is kept in the page's address and restored from it.
    """
    scripts = ["attention_map.js", "thumbnails.js", "maps.js", "history.js", "plot.js", "view_state.js", "choice.js"]
    scripts += ["heads_grid.js", "large_map.js", "writing.js", "replay_charts.js", "replay.js"]
    functions = {"picture": picture, "replay": partial(replay, runs)}
    return component(
        "attention_viewer", elem_id=elem_id, server_functions=functions, scripts=scripts, styles=["thumbnails.css"]
    )


_FULL = 65_535  # two bytes a weight, for a decode: no digit that is shown is lost


def attention_value(seen: Seen, opened: dict[str, Any]) -> dict[str, Any]:
    """Return every head of a decode for the Attention tab.

    Args:
        opened: what of it to show: ``block``, ``layer``, ``head`` and ``row`` (from 0), each optional.
    """
    inspection = seen.inspection
    blocks = seen.blocks
    return {
        "run": seen.run,
        "decode": {
            "by": f"{display_name(seen.run)} after {seen.step} steps" + (f", {seen.asked}" if seen.asked else ""),
            "source": inspection.source_labels,
            "tokens": [step.produced for step in inspection.steps],
            "expected": [*inspection.expected, EOS] if inspection.expected else None,
            "blocks": described(blocks),
            "maps": {block: _packed(getattr(inspection.maps, block)[:, 0].numpy()) for block in blocks},
            "scored": source_block(blocks) if inspection.scores else None,
            "attention_mass": _by_layer([(score.layer, score.attention_mass) for score in inspection.scores]),
            "scored_on": "on this input",
            "uniform_mass": inspection.scores[0].uniform_mass if inspection.scores else None,
            "marked": true_cells_of(inspection),
        },
        "open": opened,
    }


class ReplayRequest(BaseModel):
    """What the Attention tab asks for; anybody may, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)
    since: int = Field(default=-1, ge=-1)
    since_step: int = Field(default=-1, ge=-1)
    since_evaluation: int = Field(default=-1, ge=-1)


def replay(runs: Runs, request: dict[str, Any]) -> dict[str, Any]:
    """Answer the Attention tab: where a run stands, and the figures and snapshots after those that it already has."""
    try:
        asked = ReplayRequest.model_validate(request)
        progress = progress_since(runs, asked.run, since_step=asked.since_step, since_evaluation=asked.since_evaluation)
        return progress | replay_value(runs.replay(asked.run).snapshots(), since=asked.since)
    except ValidationError as error:
        return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}
    except LabError as error:
        return {"error": str(error)}


def replay_value(snapshots: Sequence[Snapshot], *, since: int = -1) -> dict[str, Any]:
    """Return the snapshots after a step, the steps of all there are, and what holds for all of them."""
    last = snapshots[-1] if snapshots else None
    blocks: list[Block] = list(last.outputs[0].maps) if last and last.outputs else []
    return {
        "kept": [snapshot.step for snapshot in snapshots],
        "inputs": [
            {
                "source": [BOS, *each.symbols, EOS],
                "expected": [*each.expected, EOS] if each.expected else None,
                "marked": each.gold_cells,
            }
            for each in (last.inputs if last else ())
        ],
        "blocks": described(blocks),
        "scored": source_block(blocks) if last and last.attention_mass else None,
        "uniform_mass": last.uniform_mass if last else None,
        "scored_on": f"over {last.num_scored} fixed inputs" if last else "",
        "snapshots": [
            {
                "step": each.step,
                "attention_mass": each.attention_mass,
                "outputs": [_output(output) for output in each.outputs],
            }
            for each in snapshots
            if each.step > since
        ],
    }


def _output(output: SnapshotOutput) -> dict[str, Any]:
    return {"tokens": output.tokens, "maps": {block: _of_bytes(maps) for block, maps in output.maps.items()}}


def _of_bytes(maps: PackedMaps) -> dict[str, Any]:
    return {"shape": maps.shape, "bytes": 1, "data": base64.b64encode(maps.data).decode()}


def _packed(weights: np.ndarray) -> dict[str, Any]:
    """Pack weights (L, H, Tq, Tk) float into two bytes each, the lower first."""
    numbers = (weights * _FULL).round().astype("<u2")
    return {"shape": weights.shape, "bytes": 2, "data": base64.b64encode(numbers.tobytes()).decode()}


def _by_layer(masses: Sequence[tuple[int, float]]) -> list[list[float]] | None:
    """Group (layer, attention mass) of every head by layer; None without any."""
    layers: dict[int, list[float]] = {}
    for layer, mass in masses:
        layers.setdefault(layer, []).append(mass)
    return list(layers.values()) or None


MAX_PICTURE_SIDE = 128
_DRAWING = threading.BoundedSemaphore(2)  # a picture takes a hundred MB while it is drawn
_SECONDS_TO_WAIT = 5.0
Cell = Annotated[list[int], Field(min_length=2, max_length=2)]


class PictureRequest(BaseModel):
    """What a browser may ask to have drawn: one map, small enough to draw in a second."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    title: str = Field(max_length=200)
    rows: list[str] = Field(min_length=1, max_length=MAX_PICTURE_SIDE)
    columns: list[str] = Field(min_length=1, max_length=MAX_PICTURE_SIDE)
    weights: list[list[float]] = Field(min_length=1, max_length=MAX_PICTURE_SIDE)
    marked: list[Cell] = Field(default=[], max_length=MAX_PICTURE_SIDE**2)


def picture(request: dict[str, Any]) -> dict[str, str]:
    """Draw one head's map for download; anybody may call this, so everything is checked.

    Returns:
        ``{"png": base64}``, or ``{"error": message}``.
    """
    try:
        asked = PictureRequest.model_validate(request)
    except ValidationError as error:
        return {"error": f"cannot draw this: {error.errors()[0]['msg']}"}
    height, width = len(asked.rows), len(asked.columns)
    if len(asked.weights) != height or any(len(row) != width for row in asked.weights):
        return {"error": f"weights must be {height} rows of {width} numbers, as there are labels"}
    labels = [[label[:20] for label in names] for names in (asked.rows, asked.columns)]
    inside = [(row, column) for row, column in asked.marked if 0 <= row < height and 0 <= column < width]
    if not _DRAWING.acquire(timeout=_SECONDS_TO_WAIT):
        return {"error": "many pictures are being drawn; try again in a moment"}
    try:
        weights = np.clip(np.array(asked.weights), 0, 1)
        from core.reports.plotting import (  # matplotlib takes half a second, and few ask for a PNG
            as_png,
            attention_figure,
        )

        figure = attention_figure(weights, rows=labels[0], columns=labels[1], title=asked.title, marked=inside)
        return {"png": base64.b64encode(as_png(figure)).decode()}
    finally:
        _DRAWING.release()
