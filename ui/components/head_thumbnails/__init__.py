"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from typing import Any

import gradio as gr
import numpy as np

from core.interpret.head_scores import HeadScore
from core.interpret.inspection import Inspection
from ui.attention_blocks import BLOCK_NAMES, Block, columns_of, how_to_read
from ui.components.component import component
from ui.current_decode import Seen, true_cells_of


def head_thumbnails(*, elem_id: str = "mini-viewer") -> gr.HTML:
    """The heads of one layer as clickable thumbnails. Value: ``layer_value``.

    Event: ``.pick(fn)`` with ``evt.head``, counted from 1.
    """
    scripts = ["attention_map.js", "thumbnails.js"]
    return component("head_thumbnails", elem_id=elem_id, scripts=scripts, styles=["thumbnails.css"])


def viewer_value(seen: Seen, block: Block, layer: int) -> dict[str, Any]:
    """Return one layer's heads, with what is to be known to read them; layer and head are numbered from 1."""
    inspection = seen.inspection
    weights = getattr(inspection.maps, block)[layer - 1, 0].numpy()  # (H, Tq, Tk)
    scores = {score.head: score for score in inspection.scores if score.layer == layer and block == seen.source_block}
    layers = seen.layers(block)
    return {
        "title": f"{BLOCK_NAMES[block].capitalize()}, layer {layer} of {layers}",
        "caption": how_to_read(block, seen.blocks),
        "block": block,
        "layer": layer,
        "rows": _row_labels(inspection, block),
        "columns": _columns(seen, block),
        "heads": [_head(number, weights[number - 1], scores.get(number)) for number in range(1, len(weights) + 1)],
        "uniform_mass": next(iter(scores.values())).uniform_mass if scores else None,
        "marked": true_cells_of(inspection) if block == seen.source_block else [],
        "selected": _best_head(scores),
    }


def _columns(seen: Seen, block: Block) -> list[str]:
    source, read = seen.inspection.source_labels, [step.read for step in seen.inspection.steps]
    return {"source": source, "read": read, "source and read": [*source, *read]}[columns_of(block, seen.blocks)]


def _row_labels(inspection: Inspection, block: Block) -> list[dict[str, str]]:
    if block == "encoder":
        return [{"token": token} for token in inspection.source_labels]
    return [{"produced": step.produced, "read": step.read} for step in inspection.steps]


def _head(number: int, weights: np.ndarray, score: HeadScore | None) -> dict[str, Any]:
    return {
        "head": number,
        "weights": weights.round(4).tolist(),
        "score": score.attention_mass if score else None,
        "label": f"{score.attention_mass:.2f} on the true token" if score else "",
    }


def _best_head(scores: dict[int, HeadScore]) -> int | None:
    return max(scores.values(), key=lambda score: score.attention_mass).head if scores else None
