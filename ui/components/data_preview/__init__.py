"""The data preview: statistics, length histograms, example pairs and skipped rows of uploaded pairs."""

from typing import Any

import gradio as gr

from core.tasks.ingest import IngestResult, Row, histogram, other_readings, skipped_share, summary_facts
from ui.components.component import component

MAX_EXAMPLES, MAX_TEXT = 2, 200  # pairs of a reading, and characters of each


def data_preview(max_upload_mb: int) -> gr.HTML:
    """Build the component; hidden without a value. Value: ``preview_value``, or ``{"problem": message}``.

    Both have ``checked`` too, the time of the check, and ``edits``, the number of edits of the pairs before it. A value
    of an earlier check than the shown one is ignored: its training time came late. The script counts edits in
    ``document.body.dataset.pairEdits``, and so knows whether the pairs were edited since.
    Event: ``.select(fn)`` with ``evt.columns``, the reading that the visitor chose.
    """
    return component("data_preview", elem_id="own-preview", events=["select"], most_mb=max_upload_mb)


def preview_value(found: IngestResult) -> dict[str, Any]:
    """Return ingested pairs as the component's value; ``with_time`` adds the training time later."""
    return {
        "choice": found.choice,
        "warning": skipped_share(found),
        "readings": _readings(found),
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


def _readings(found: IngestResult) -> list[dict[str, Any]]:
    """Return how the file was read and could be, with the first pairs of each; [] if there is nothing to choose."""
    others = other_readings(found)
    if not others or found.reading is None:
        return []
    chosen = [(found.reading.columns, [Row(0, *pair) for pair in found.first_pairs])]
    return [
        {
            "columns": str(columns),
            "words": columns.describe(),
            "pairs": [[row.source[:MAX_TEXT], row.target[:MAX_TEXT]] for row in rows if not row.problem][:MAX_EXAMPLES],
        }
        for columns, rows in [*chosen, *others]
    ]


def with_time(value: dict[str, Any], time: str) -> dict[str, Any]:
    """Return a component's value with the training time as one more fact."""
    return value | {"facts": [*value["facts"], ["training time", time]], "timed": True}
