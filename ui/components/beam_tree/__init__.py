"""The beam search tree: all hypotheses that a beam search kept, step by step."""

import math
from typing import Any

import gradio as gr

from ui.components.component import component
from ui.current_decode import CurrentDecode


def beam_tree() -> gr.HTML:
    """Build the component; hidden without a value. Value: ``tree_value``."""
    return component("beam_tree", elem_id="beam-tree")


def tree_value(decode: CurrentDecode) -> dict[str, Any] | None:
    """Return the tree of a beam search as the component's value; None for other strategies."""
    nodes = [
        {
            "step": branch.node.step,
            "token": branch.token,
            "parent": branch.node.parent,
            "probability": math.exp(branch.node.log_prob),
            "total": branch.node.total_log_prob,
            "finished": branch.node.finished,
            "winning": branch.node.is_best,
        }
        for branch in decode.inspection.tree
    ]
    return {"nodes": nodes, "subwords": decode.inspection.has_subwords} if nodes else None
