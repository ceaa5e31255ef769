"""The Attention tab: every head of every layer, for the decode that just happened and over the training."""

import base64
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import gradio as gr
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.server import Runs
from ui.blocks import Block
from ui.components import attention_viewer
from ui.maps import attention_value, replay
from ui.views import Seen

MAX_PICTURE_SIDE = 128
_DRAWING = threading.BoundedSemaphore(2)  # a picture takes a hundred MB while it is drawn
_SECONDS_TO_WAIT = 5.0


@dataclass(frozen=True)
class AttentionTab:
    """The part of the tab that other tabs set."""

    viewer: gr.HTML

    @property
    def all(self) -> list:
        """Everything that a new decode changes, in the order of ``attention_of``."""
        return [self.viewer]


def build(runs: Runs) -> AttentionTab:
    """Build the tab: one component, which keeps what is looked at in the page's address."""
    return AttentionTab(attention_viewer(picture, partial(replay, runs)))


def attention_of(
    seen: Seen | None,
    block: Block | None = None,
    layer: int | None = None,
    *,
    run: str | None = None,
    head: int | None = None,
    row: int | None = None,
) -> list[Any]:
    """Return what the tab is given of a decode.

    Args:
        block, layer, head, row: what of it to show, layer and head numbered from 1, rows from 0; what is left out
            stays as the visitor chose it, and what this model does not have gives way to what it has.
        run: the current run, where there is no decode.
    """
    if seen is None:
        return [{"run": run, "decode": None, "open": {}}]
    asked = {"block": block, "layer": layer, "head": head, "row": row}
    opened = {name: value for name, value in asked.items() if value is not None}
    if opened:
        opened["at"] = time.time_ns() // 1_000_000  # to look at the same place again is something new
    return [attention_value(seen, opened)]


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
