"""The answer comparison: several answers to one input, one per row, with the differing tokens marked."""

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from core.generation import Strategy
from core.interpret.inspection import Inspection
from core.text.pieces import sentence_of, word_names
from ui.components.component import component
from ui.current_decode import CurrentDecode
from ui.interventions import NO_INTERVENTIONS, InterventionSpec


def answer_comparison(*, elem_id: str = "comparison") -> gr.HTML:
    """Build the component; hidden without a value. Value: ``strategies_value`` or ``interventions_value``.

    Event: ``.press(fn)`` for the button that the value names under ``"button"``.
    """
    return component("answer_comparison", elem_id=elem_id, events=["press"])


def strategies_value(
    inspections: Sequence[Inspection], interventions: InterventionSpec = NO_INTERVENTIONS
) -> dict[str, Any]:
    """Return decodes of one input by several strategies as the component's value."""
    suffix = f", {interventions}" if interventions else ""
    return {
        "heading": f"All strategies: {_source_text(inspections[0])}{suffix}",
        "note": "Marked: tokens that differ from the first answer. log P is the log-probability of the whole "
        "answer under the model, in nats, whichever strategy produced it.",
        "rows": [_row(_strategy_label(each.strategy), each) | {"log_prob": each.log_prob} for each in inspections],
    }


def interventions_value(decode: CurrentDecode | None) -> dict[str, Any] | None:
    """Return a decode with and without its interventions as the component's value; None without interventions."""
    if decode is None or decode.baseline is None:
        return None
    return {
        "heading": "",
        "note": " ".join(_moved_positions(decode.inspection)),
        "rows": [_row("all heads as trained", decode.baseline), _row(str(decode.interventions), decode.inspection)],
        "button": "Restore all heads",
    }


def _moved_positions(inspection: Inspection) -> Iterator[str]:
    """Yield a sentence for each head whose pattern is a position that it cannot attend to; see ``Pattern``."""
    cross, interventions = inspection.maps.cross, inspection.interventions
    if cross is None or interventions is None:
        return
    for head, pattern in interventions.patterns:
        column = int(cross[head.layer - 1, 0, head.head - 1, 0].argmax())
        if pattern.kind == "position" and column != pattern.position:
            yield (
                f"This input has no position {pattern.position} to attend to; {head} attends to position {column}, "
                f"{inspection.source_labels[column]}."
            )


def _strategy_label(strategy: Strategy) -> str:
    changed = strategy.model_dump(exclude={"kind"}, exclude_defaults=True)
    return ", ".join([strategy.kind, *(f"{name.replace('_', ' ')} {value:g}" for name, value in changed.items())])


def _source_text(inspection: Inspection) -> str:
    return sentence_of(inspection.symbols) if inspection.has_subwords else " ".join(inspection.symbols)


def _row(label: str, inspection: Inspection) -> dict[str, Any]:
    return {
        "label": label,
        "output": inspection.output,
        "words": word_names(inspection.output) if inspection.has_subwords else None,
        "correct": inspection.correct,
        "stopped": inspection.stopped,
    }
