"""The head thumbnails: the attention maps of one layer, one small picture per head."""

from typing import Any

import gradio as gr
import numpy as np

from core.interpret.head_scores import HeadScore
from core.interpret.map_rows import first_step_row
from ui.attention_blocks import BLOCK_NAMES, Block, columns_of, how_to_read
from ui.components.component import component
from ui.current_decode import CurrentDecode


def head_thumbnails() -> gr.HTML:
    """Build the component. Value: ``layer_value``. Event: ``.pick(fn)`` with ``evt.head``, counted from 1."""
    return component("head_thumbnails", elem_id="mini-viewer", events=["pick"])


def layer_value(decode: CurrentDecode, block: Block, layer: int) -> dict[str, Any]:
    """Return the attention maps of all heads of one layer, with labels and scores.

    Args:
        layer: counted from 1, as are the heads in the result.
    """
    inspection = decode.inspection
    weights = getattr(inspection.maps, block)[layer - 1, 0].numpy()  # (H, Tq, Tk)
    ablated = set(decode.interventions.ablate)
    scores = {score.head: score for score in inspection.scores if score.layer == layer and block == decode.source_block}
    return {
        "title": f"{BLOCK_NAMES[block].capitalize()}, layer {layer} of {decode.num_layers(block)}",
        "caption": how_to_read(block, decode.blocks),
        "block": block,
        "layer": layer,
        "rows": _row_labels(decode, block),
        "columns": _column_labels(decode, block),
        "heads": [
            _head(number, weights[number - 1], scores.get(number))
            | {"ablated": bool(ablated & {f"{block}.{layer}", f"{block}.{layer}.{number}"})}
            for number in range(1, len(weights) + 1)
        ],
        "uniform_mass": next(iter(scores.values())).uniform_mass if scores else None,
        "gold_cells": _gold_cells(decode, block),
        "selected": _best_head(scores),
    }


def _gold_cells(decode: CurrentDecode, block: Block) -> list[list[int]]:
    """Return the [row, column] of the gold alignment in the maps of a block."""
    if block != decode.source_block:
        return []
    return [[step + first_step_row(block), column] for step, column in decode.gold_cells]


def _column_labels(decode: CurrentDecode, block: Block) -> list[str]:
    source, read = decode.inspection.source_labels, [step.read for step in decode.inspection.steps]
    return {"source": source, "read": read, "source and read": [*source, *read]}[columns_of(block, decode.blocks)]


def _row_labels(decode: CurrentDecode, block: Block) -> list[dict[str, str]]:
    if block == "encoder":
        return [{"token": token} for token in decode.inspection.source_labels]
    return [{"produced": step.produced, "read": step.read} for step in decode.inspection.steps]


def _head(number: int, weights: np.ndarray, score: HeadScore | None) -> dict[str, Any]:
    return {
        "head": number,
        "weights": weights.round(4).tolist(),
        "score": score.attention_mass if score else None,
        "label": f"{score.attention_mass:.2f} on the correct source token" if score else "",
    }


def _best_head(scores: dict[int, HeadScore]) -> int | None:
    return max(scores.values(), key=lambda score: score.attention_mass).head if scores else None
