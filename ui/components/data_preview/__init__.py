"""Your own pairs, on the Train tab: bring a file or paste lines, see what is in them, and learn them."""

from typing import Any

import gradio as gr

from core.tasks.ingest import IngestResult, histogram, summary_facts
from ui.components.component import component


def data_preview(*, elem_id: str = "own-preview") -> gr.HTML:
    """A summary of uploaded pairs. Value: ``preview_value``, or ``{"problem": message}``."""
    return component("data_preview", elem_id=elem_id)


def preview_of(found: IngestResult) -> dict[str, Any]:
    """Return what there is to see of data as plain data."""
    return {
        "facts": [list(fact) for fact in summary_facts(found)],
        "lengths": [
            {"title": f"tokens in the {side}", "bars": [list(bar) for bar in histogram(lengths)]}
            for side, lengths in (("source", found.source_lengths), ("answer", found.target_lengths))
        ],
        "pairs": [list(pair) for pair in found.first_pairs],
        "left_out": found.skipped.total(),
        "problems": [str(problem) for problem in found.problems],
    }
