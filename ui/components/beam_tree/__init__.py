"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

import math
from typing import Any

import gradio as gr

from ui.components.component import component
from ui.current_decode import Seen


def beam_tree(*, elem_id: str = "beam-tree") -> gr.HTML:
    """All hypotheses of a beam search as a tree; hidden without a value. Value: ``tree_value``."""
    return component("beam_tree", elem_id=elem_id)


def tree_value(seen: Seen) -> dict[str, Any] | None:
    """Return what a beam search held for the tree component; None of a decode that was no search."""
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
        for branch in seen.inspection.tree
    ]
    return {"nodes": nodes} if nodes else None
