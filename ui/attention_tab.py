"""The Attention tab: every head of every layer, for the decode that just happened."""

import base64
from dataclasses import dataclass
from typing import Annotated, Any

import gradio as gr
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.figures import as_png, attention_figure
from ui.components import attention_viewer, notice
from ui.views import BLOCK_NAMES, Block, Seen, viewer_value

MAX_PICTURE_SIDE = 128
NOTHING_SEEN = {"text": "Nothing decoded yet. Type a sequence under Decode."}


@dataclass(frozen=True)
class AttentionTab:
    """The parts of the tab that other tabs set."""

    heading: gr.HTML
    block: gr.Radio
    layer: gr.Radio
    viewer: gr.HTML

    @property
    def all(self) -> list:
        """Everything that a new decode changes, in the order of ``attention_of``."""
        return [self.heading, self.block, self.layer, self.viewer]


def build(seen: gr.State) -> AttentionTab:
    """Build the tab and let its radios redraw it."""
    heading = notice(value=NOTHING_SEEN, elem_id="attention-of")
    with gr.Row():
        block = gr.Radio(
            [(name, key) for key, name in BLOCK_NAMES.items()],
            value="cross",
            label="Which attention",
            elem_id="block",
            interactive=True,
            scale=3,
        )
        layer = gr.Radio(["1"], value="1", label="Layer", elem_id="layer", interactive=True, scale=1)
    viewer = attention_viewer(picture)
    tab = AttentionTab(heading, block, layer, viewer)
    gr.on(
        [block.input, layer.input],
        attention_of,
        [seen, block, layer],
        tab.all,
        show_progress="hidden",
        trigger_mode="always_last",
        api_visibility="private",
    )
    return tab


def attention_of(
    seen: Seen | None, block: Block, layer: str | None, *, head: int | None = None, row: int | None = None
) -> list[Any]:
    """Return what the tab shows of a decode: heading, block, layer and heads.

    A block or layer that this model does not have gives way to one that it has; None asks for the last layer.
    """
    if seen is None:
        return [NOTHING_SEEN, gr.skip(), gr.skip(), None]
    blocks = [(name, key) for key, name in BLOCK_NAMES.items() if seen.layers(key)]
    block, number = place_in(seen, block, layer)
    count = seen.layers(block)
    shown = seen.inspection
    what = f"{' '.join(shown.symbols)} → {' '.join(shown.output)}"
    return [
        {"text": f"Attention of {what}, by {seen.run} after {seen.step} steps"},
        gr.update(choices=blocks, value=block),
        gr.update(choices=[str(each + 1) for each in range(count)], value=str(number)),
        viewer_value(seen, block, number, head=head, row=row),
    ]


def place_in(seen: Seen, block: Block, layer: str | None) -> tuple[Block, int]:
    """Return the block and the layer that are shown of a decode when these are asked for."""
    block = block if seen.layers(block) else seen.source_block
    count = seen.layers(block)
    return block, int(layer) if layer and layer.isdigit() and 1 <= int(layer) <= count else count


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
    figure = attention_figure(
        np.clip(np.array(asked.weights), 0, 1), rows=labels[0], columns=labels[1], title=asked.title, marked=inside
    )
    return {"png": base64.b64encode(as_png(figure)).decode()}
