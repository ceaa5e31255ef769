"""The attention viewer: every head of the current decode, or of fixed inputs at each saved training step."""

import base64
import threading
import time
from collections.abc import Sequence
from functools import partial
from textwrap import shorten
from typing import Annotated, Any

import gradio as gr
import numpy as np
from pydantic import Field

from core.interpret.health import head_marks
from core.interpret.snapshots import PackedMaps, Snapshot, SnapshotOutput
from core.server.access import VisitorRuns
from core.storage.errors import InputError, LabError
from core.text.pieces import sentence_of
from ui.attention_blocks import Block, described_maps, source_block
from ui.components.attention_viewer.inside import CellRequest, PartRequest, cell, part, parts
from ui.components.component import MetricsRequest, Request, RunRequest, component, validated
from ui.current_decode import CurrentDecode
from ui.decode_record import decode_record, words_and_texts
from ui.run_info import progress_since

MAX_PICTURE_SIDE = 128  # rows or columns
NO_HEADS = "This model has no attention heads. Press a token of the answer below to see what it depends on."
_DRAWING = threading.BoundedSemaphore(2)  # drawing one picture takes 100 MB
_DRAWING_TIMEOUT = 5.0  # seconds


def attention_viewer(runs: VisitorRuns, *, elem_id: str = "viewer") -> gr.HTML:
    """Build the component. Value: ``attention_value``.

    The selected view is kept in the page's address and restored from it.
    """
    functions = {
        "picture": validated(PictureRequest, picture),
        "replay": validated(ReplayRequest, partial(replay, runs)),
        "parts": validated(RunRequest, partial(parts, runs)),
        "part": validated(PartRequest, partial(part, runs)),
        "cell": validated(CellRequest, partial(cell, runs)),
    }
    return component("attention_viewer", elem_id=elem_id, server_functions=functions)


# ---- the current decode


def attention_value(
    decode: CurrentDecode | None,
    *,
    run: str | None = None,
    problem: str = "",
    asked: bool = False,
    only_replay: bool = False,
    block: Block | None = None,
    layer: int | None = None,
    head: int | None = None,
    row: int | None = None,
) -> dict[str, Any]:
    """Return the component's value: the attention maps of a decode, and optionally what to select.

    Args:
        run: the current run, where there is no decode.
        problem: why there is no decode.
        only_replay: whether the run has a replay and nothing else, as a training by a user's own loop.
        asked: whether the visitor asked for this decode just now; a training replay then gives way to it.
        block, layer, head, row: selection, with layer and head counted from 1 and rows from 0. What is None keeps the
            visitor's selection; what the model does not have falls back to what it has.
    """
    if decode is None or not decode.blocks:
        problem = problem if decode is None else NO_HEADS
        value: dict[str, Any] = {
            "run": run,
            "decode": None,
            "problem": problem,
            "selection": {},
            "asked": _now() if asked else None,
        }
        return value | {"only_replay": True} if only_replay else value
    given = {"block": block, "layer": layer, "head": head, "row": row}
    selection: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if selection:
        selection["at"] = _now()  # distinguishes two selections of the same cell
    record = decode_record(decode)
    return {"run": decode.run, "decode": record, "selection": selection, "asked": _now() if asked else None}


def _now() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


# ---- the training replay


class ReplayRequest(MetricsRequest):
    """A request for metrics and snapshots after those that the browser already has."""

    since: int = Field(default=-1, ge=-1)


def replay(runs: VisitorRuns, request: ReplayRequest) -> dict[str, Any]:
    """Return the state of a run with its new metrics and attention snapshots, and which of them have weights."""
    run = runs[request.run]
    progress = progress_since(run, **request.held)
    snapshots, kept = run.replay.snapshots(), run.weights_by_step
    weights_steps = [each.step for each in snapshots if each.step in kept.steps]
    found = replay_value(snapshots, since=request.since, subwords=run.preset.task.has_subwords)
    return progress | found | {"weights_steps": weights_steps, "watched": run.preset.is_watched}


def replay_value(snapshots: Sequence[Snapshot], *, since: int = -1, subwords: bool = False) -> dict[str, Any]:
    """Return the snapshots after a step, the steps of all saved snapshots, and what they have in common."""
    last = snapshots[-1] if snapshots else None
    output = last.outputs[0] if last and last.outputs else None
    blocks: list[Block] = list(output.maps) if output else []
    return {
        "saved_steps": [snapshot.step for snapshot in snapshots],
        "inputs": [
            {
                "source": list(each.source),
                "expected": list(each.answer) or None,
                "gold_cells": each.gold_cells,
            }
            | ({"text": sentence_of(each.symbols)} if subwords else {})
            | ({"text": shorten(" ".join(each.symbols), 60, placeholder=" …")} if each.tokens is not None else {})
            for each in (last.inputs if last else ())
        ],
        "blocks": described_maps(output) if output else [],
        "scored_block": source_block(blocks) if last and last.attention_mass else None,
        "uniform_mass": last.uniform_mass if last else None,
        "scored_on": f"mean over {last.num_scored} fixed inputs" if last else "",
        "snapshots": [
            {
                "step": each.step,
                "attention_mass": each.attention_mass,
                "induction": each.health.heads.induction.get("decoder") if each.health else None,
                "marks": head_marks(each.health.heads) if each.health else {},
                "outputs": [
                    _output(output) | words_and_texts([*given.source], output.tokens, given.expected, subwords=subwords)
                    for given, output in zip(each.inputs, each.outputs, strict=True)
                ],
            }
            for each in snapshots
            if each.step > since
        ],
    }


def _output(output: SnapshotOutput) -> dict[str, Any]:
    maps = {block: encoded(maps) for block, maps in output.maps.items()}
    read = {} if output.reference is None else {"read": list(output.reference)}
    return {"tokens": output.tokens, "maps": maps} | read


def encoded(maps: PackedMaps) -> dict[str, Any]:
    """Return saved maps as plain data, 8 bits per weight, base64-encoded."""
    return {"shape": maps.shape, "bytes": 1, "data": base64.b64encode(maps.data).decode()}


# ---- the picture of one head

Cell = Annotated[list[int], Field(min_length=2, max_length=2)]


class PictureRequest(Request):
    """One attention map to draw, small enough to take at most a second."""

    title: str = Field(max_length=200)
    rows: list[str] = Field(min_length=1, max_length=MAX_PICTURE_SIDE)
    columns: list[str] = Field(min_length=1, max_length=MAX_PICTURE_SIDE)
    weights: list[list[float]] = Field(min_length=1, max_length=MAX_PICTURE_SIDE)
    marked: list[Cell] = Field(default=[], max_length=MAX_PICTURE_SIDE**2)


def picture(request: PictureRequest) -> dict[str, Any]:
    """Draw one attention map as ``{"png": base64}``."""
    height, width = len(request.rows), len(request.columns)
    if len(request.weights) != height or any(len(row) != width for row in request.weights):
        raise InputError(f"weights must have {height} rows of {width} numbers, one per label")
    labels = [[label[:20] for label in names] for names in (request.rows, request.columns)]
    inside = [(row, column) for row, column in request.marked if 0 <= row < height and 0 <= column < width]
    if not _DRAWING.acquire(timeout=_DRAWING_TIMEOUT):
        raise LabError("too many pictures are being drawn; try again in a moment")
    try:
        weights = np.clip(np.array(request.weights), 0, 1)
        from core.reports.plotting import as_png, attention_figure  # matplotlib takes half a second to import

        figure = attention_figure(weights, rows=labels[0], columns=labels[1], title=request.title, marked=inside)
        return {"png": base64.b64encode(as_png(figure)).decode()}
    finally:
        _DRAWING.release()
