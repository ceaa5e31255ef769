"""The data preview: statistics, length histograms, example pairs and skipped rows of uploaded pairs."""

from typing import Any

import gradio as gr

from core.tasks.ingest import IngestResult, histogram, summary_facts
from ui.components.component import component


def data_preview() -> gr.HTML:
    """Build the component; hidden without a value. Value: ``preview_value``, or ``{"problem": message}``.

    Both have ``checked`` too, the time of the check: the script tells by it whether pairs were edited since.
    """
    return component("data_preview", elem_id="own-preview")


def preview_value(found: IngestResult) -> dict[str, Any]:
    """Return ingested pairs as the component's value; ``with_time`` adds the training time later."""
    return {
        "choice": found.choice,
        "facts": [list(fact) for fact in summary_facts(found)],
        "lengths": [
            {"title": f"tokens per {side}", "bars": [list(bar) for bar in histogram(lengths)]}
            for side, lengths in (("source", found.source_lengths), ("target", found.target_lengths))
        ],
        "pairs": [list(pair) for pair in found.first_pairs],
        "skipped": found.skipped.total(),
        "problems": [str(problem) for problem in found.problems],
        "data": found.sha256,
    }


def with_time(value: dict[str, Any], time: str) -> dict[str, Any]:
    """Return a component's value with the training time as one more fact."""
    return value | {"facts": [*value["facts"], ["training time", time]], "timed": True}
