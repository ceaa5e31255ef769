"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from typing import Any

import gradio as gr

from ui.components.component import component
from ui.current_decode import Seen


def answer(*, elem_id: str = "answer") -> gr.HTML:
    """The model's output, whether it is correct, and the most probable tokens at each step. Value: ``answer_value``.

    Event: ``.look(fn)`` with ``evt.step``, counted from 0.
    """
    return component("answer", elem_id=elem_id)


def answer_value(seen: Seen) -> dict[str, Any]:
    """Return a decode for the answer component."""
    inspection = seen.inspection
    return {
        "input": inspection.symbols,
        "output": inspection.output,
        "expected": inspection.expected,
        "correct": inspection.correct,
        "stopped": inspection.stopped,
        "note": inspection.note,
        "milliseconds": inspection.seconds * 1000,
        "log_prob": inspection.log_prob,
        "ranked": [
            {"output": each.output, "log_prob": each.log_prob, "score": each.score, "stopped": each.stopped}
            for each in inspection.hypotheses
        ],
        "steps": [
            {
                "token": step.produced,
                "read": step.read,
                "probability": step.probability,
                "forced": step.forced,
                "candidates": [{"token": token, "probability": share} for token, share in step.candidates],
            }
            for step in inspection.steps
        ],
    }
