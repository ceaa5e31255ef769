"""The answer component: the model's output, whether it is correct, and the most probable tokens at each step."""

from typing import Any

import gradio as gr

from core.text.pieces import sentence_of
from ui.components.component import component
from ui.current_decode import CurrentDecode
from ui.subword_texts import sentences

FAILED = {"failed": True}
"""The component's value after an input that could not be decoded."""


def answer(*, elem_id: str = "answer") -> gr.HTML:
    """Build the component. Value: ``answer_value`` or ``FAILED``.

    With a ``record`` (``ui.decode_record.ribbon_record``), lines connect the words of the input and of the output.

    Event: ``.inspect(fn)`` with ``evt.step``, counted from 0, when the visitor asks for the attention of a step.
    """
    return component("answer", elem_id=elem_id, events=["inspect"])


def answer_value(decode: CurrentDecode) -> dict[str, Any]:
    """Return a decode as the component's value."""
    inspection = decode.inspection
    source, output, expected = inspection.symbols, inspection.output, inspection.expected
    return {
        "texts": sentences(source=source, output=output, expected=expected) if inspection.has_subwords else None,
        "input": inspection.symbols,
        "output": inspection.output,
        "expected": inspection.expected,
        "correct": inspection.correct,
        "stopped": inspection.stopped,
        "note": inspection.note,
        "held_out": inspection.split and inspection.split != "train",
        "unsure": inspection.is_unsure,
        "has_heads": bool(decode.blocks),
        "milliseconds": inspection.seconds * 1000,
        "log_prob": inspection.log_prob,
        "n_best": [
            {
                "output": each.output,
                "text": sentence_of(each.output) if inspection.has_subwords else None,
                "log_prob": each.log_prob,
                "score": each.score,
                "stopped": each.stopped,
            }
            for each in inspection.hypotheses
        ],
        "steps": [
            {
                "token": step.produced,
                "read": step.read,
                "probability": step.probability,
                "forced": step.forced,
                "candidates": [{"token": token, "probability": probability} for token, probability in step.candidates],
            }
            for step in inspection.steps
        ],
    }
