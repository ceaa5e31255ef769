"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from core.generation import Strategy
from core.interpret.inspection import Inspection
from ui.components.component import component
from ui.current_decode import Seen
from ui.interventions import ALL_HEADS, RequestedInterventions


def answer_comparison(*, elem_id: str = "comparison") -> gr.HTML:
    """Several answers to one input; tokens that differ from the first answer are marked. Hidden without a value.

    Value: ``strategies_value`` or ``interventions_value``. Event: ``.press(fn)`` for the value's ``"button"``.
    """
    return component("answer_comparison", elem_id=elem_id)


def comparison_value(inspections: Sequence[Inspection], asked: RequestedInterventions = ALL_HEADS) -> dict[str, Any]:
    """Return decodes of one input by several strategies for the comparison component."""
    interventions = f", {asked}" if asked else ""
    return {
        "heading": f"Side by side: {' '.join(inspections[0].symbols)}{interventions}",
        "note": "Marked: where an answer first differs from the first one. Log P is the log-probability of the whole "
        "answer in the model's own distribution, in nats, whatever wrote it.",
        "rows": [_row(_in_words(each.strategy), each) | {"log_prob": each.log_prob} for each in inspections],
    }


def edited_value(seen: Seen | None) -> dict[str, Any] | None:
    """Return a decode with and without what was done to heads, for the comparison component; None if nothing was."""
    if seen is None or seen.intact is None:
        return None
    return {
        "heading": "",
        "note": "",
        "rows": [_row("with all heads", seen.intact), _row(str(seen.asked), seen.inspection)],
        "button": "Restore all heads",
    }


def _in_words(strategy: Strategy) -> str:
    changed = strategy.model_dump(exclude={"kind"}, exclude_defaults=True)
    return ", ".join([strategy.kind, *(f"{name.replace('_', ' ')} {value:g}" for name, value in changed.items())])


def _row(label: str, inspection: Inspection) -> dict[str, Any]:
    return {
        "label": label,
        "output": inspection.output,
        "correct": inspection.correct,
        "stopped": inspection.stopped,
    }
