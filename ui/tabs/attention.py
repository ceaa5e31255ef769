"""The tab Look inside: all attention heads, their importance, and interventions on them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

from core.interpret.ablation import parse_ablation
from core.models.seq2seq import Head
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from ui.components.answer_comparison import answer_comparison, interventions_value
from ui.components.attention_viewer import attention_viewer
from ui.components.head_importance import Measurement, head_importance, saved_value
from ui.components.notice import NO_RUN, notice, problem
from ui.components.why_answer import why_answer, why_value
from ui.current_decode import CurrentDecode
from ui.events import CHANGE, CPU, LATEST, PRESSED, QUIET, event_text
from ui.interventions import InterventionSpec, heads_of_run
from ui.updates import Updates, by_name, each_by_name

AS_TRAINED = "as trained"
MAX_POSITION = 999_999  # that a pattern names
NO_CROSS = {"text": "Pattern interventions need cross-attention, which this model does not have."}
CANCELLED = {"text": "Cancelled. The measured cells were not saved."}
_INTRODUCTION = """
### Head importance (ablation)
An attention map alone does not explain an answer; ablation tests what a head contributes. Press a head, or *all* heads
of a layer, to decode the current input without it. Measure all heads to see how many held-out inputs need each.
"""


@dataclass(frozen=True)
class AttentionTab:
    """The components that the page updates, and the events that it answers with a new decode.

    Attributes:
        run_outputs: the components that ``run_updates`` updates, by name.
        decode_outputs: the components that ``decode_updates`` updates, by name.
        interventions_changed: events after which the current input must be decoded again.
    """

    viewer: gr.HTML
    run_outputs: dict[str, Component]
    decode_outputs: dict[str, Component]
    interventions_changed: list[Dependency]


def build(
    runs: VisitorRuns, run: gr.State, interventions: gr.State, decode_comparison: gr.HTML, *, ends: Sequence[Callable]
) -> AttentionTab:
    """Build the tab and connect its own events.

    Args:
        run: holds the current run's name.
        interventions: holds the current ``InterventionSpec``.
        decode_comparison: the Decode tab's comparison with and without interventions.
        ends: events that cancel a measurement in progress.
    """
    viewer = attention_viewer(runs)
    explained = why_answer(runs)
    with gr.Column(elem_id="head-importance") as importance:
        gr.Markdown(_INTRODUCTION)
        with gr.Row(elem_classes="actions"):
            ablate_with = gr.Radio(
                [("zero", "zero"), ("its mean", "mean")],
                value="zero",
                label="Replace the head's output with",
                elem_id="ablation",
                interactive=True,
                scale=0,
                min_width=300,
            )
            start = gr.Button("Measure all heads", variant="primary", elem_id="measure-heads", min_width=150)
            cancel = gr.Button("Cancel", interactive=False, elem_id="cancel-heads", min_width=90)
        message = notice(elem_id="heads-message")
        with gr.Row(elem_id="ablation-row"):
            with gr.Column(scale=3, min_width=320):
                grid = head_importance()
            with gr.Column(scale=2, min_width=300):
                own_comparison = answer_comparison(elem_id="attention-edited")
        pattern_outputs, pattern_applied = _build_patterns(runs, run, interventions, message)

    outputs = {
        "interventions": interventions,
        "message": message,
        "grid": grid,
        "measure": start,
        "cancel": cancel,
    }
    event: dict[str, Any] = {"outputs": list(outputs.values()), **QUIET}
    begun = start.click(by_name(lambda: {"message": {"text": ""}} | _state(measuring=True), outputs), None, **event)
    measuring = begun.then(each_by_name(partial(measure, runs), outputs), [run, interventions], **event, **CPU)
    measuring.then(by_name(lambda: _state(measuring=False), outputs), None, **event)
    for ending in (cancel.click, ablate_with.input, *ends):
        ending(None, None, None, cancels=[measuring], api_visibility="private")
    cancel.click(by_name(lambda: {"message": CANCELLED} | _state(measuring=False), outputs), None, **event)

    def toggle_cell(run: str | None, spec: InterventionSpec, event: gr.EventData) -> Updates:
        return toggle(runs, run, spec, event_text(event, "name"))

    comparisons = [decode_comparison, own_comparison]
    changed = [
        ablate_with.input(
            by_name(partial(set_ablate_with, runs), outputs),
            [run, interventions, ablate_with],
            **event | CHANGE | LATEST,
        ),
        grid.toggle(by_name(toggle_cell, outputs), [run, interventions], **event | CHANGE | PRESSED),
        pattern_applied,
        *(each.press(by_name(_cleared, outputs), interventions, **event | CHANGE) for each in comparisons),
    ]
    run_outputs = {"importance": importance, "grid": grid, "measure": start, "cancel": cancel}
    run_outputs |= {"ablate_with": ablate_with} | pattern_outputs
    decode_outputs = {
        "heads_message": message,
        "grid": grid,
        "interventions": decode_comparison,
        "own_interventions": own_comparison,
        "why": explained,
    }
    return AttentionTab(viewer, run_outputs, decode_outputs, changed)


def _build_patterns(
    runs: VisitorRuns, run: gr.State, interventions: gr.State, message: gr.HTML
) -> tuple[dict[str, Component], Dependency]:
    """Build the pattern interventions; return the components that depend on the run, and the event of Apply."""
    with gr.Accordion(
        "Replace the attention pattern of a cross-attention head", open=False, elem_id="force", elem_classes="fold"
    ):
        missing = notice(elem_id="force-missing")
        with gr.Column(visible=False) as controls:
            head = gr.Dropdown([], label="Head", elem_id="force-head", interactive=True)
            pattern = gr.Radio(
                [
                    ("diagonal: step t attends to token t", "diagonal"),
                    ("anti-diagonal: from the last token to the first", "anti-diagonal"),
                    ("one fixed position", "position"),
                    ("as trained", AS_TRAINED),
                ],
                value="diagonal",
                label="Attention pattern",
                elem_id="force-pattern",
                interactive=True,
            )
            position = gr.Number(
                1,
                label="Position",
                info="column of the map: 0 is <BOS>; above the last, <EOS>",
                visible=False,
                elem_id="position",
            )
            with gr.Row(elem_classes="actions"):
                button = gr.Button("Apply", elem_id="force-apply", min_width=90)
    pattern.input(lambda kind: gr.update(visible=kind == "position"), pattern, position, **LATEST, **QUIET)
    inputs = [run, interventions, head, pattern, position]
    outputs = {"interventions": interventions, "message": message}
    apply = by_name(partial(set_pattern, runs), outputs)
    applied = button.click(apply, inputs, list(outputs.values()), **QUIET | CHANGE | LATEST)
    return {"pattern_head": head, "pattern_controls": controls, "pattern_message": missing}, applied


def run_updates(runs: VisitorRuns, run: str | None, interventions: InterventionSpec) -> Updates:
    """Return the updates for the current run: its saved head importance, and the heads for pattern interventions."""
    updates = _state(measuring=False)
    if run is None:
        empty = {"grid": gr.update(value=None, measuring=False), "pattern_message": NO_RUN}
        return updates | empty | {"importance": gr.update(visible=True)}
    chosen = runs[run]
    heads = heads_of_run(chosen)
    cross = [str(head) for head in heads if head.block == "cross"]
    return updates | {
        "importance": gr.update(visible=bool(heads)),
        "grid": gr.update(value=saved_value(chosen, interventions.ablate_with), measuring=False),
        "ablate_with": interventions.ablate_with,
        "pattern_head": gr.update(choices=cross, value=cross[0] if cross else None),
        "pattern_controls": gr.update(visible=bool(cross)),
        "pattern_message": {"text": ""} if cross else NO_CROSS,
    }


def decode_updates(decode: CurrentDecode | None, interventions: InterventionSpec, error: str = "") -> Updates:
    """Return the updates after a decode: an error about the interventions, and the values of grid and comparisons."""
    comparison = interventions_value(decode)
    marked = {
        "ablated": list(interventions.ablate),
        "patterns": dict(each.split("=") for each in interventions.patterns),
    }
    return ({"heads_message": problem(error)} if error else {}) | {
        "grid": gr.update(interventions=marked),
        "interventions": comparison,
        "own_interventions": comparison,
        "why": why_value(decode),
    }


def applicable(runs: VisitorRuns, run: str | None, interventions: InterventionSpec) -> tuple[InterventionSpec, str]:
    """Return the interventions if they fit the current run, else none; and the error, or ""."""
    interventions = interventions.for_run(run)
    if not interventions or run is None:
        return interventions, ""
    try:
        return interventions.validated(heads_of_run(runs[run])), ""
    except LabError as error:
        return interventions.cleared(), f"Decoded without interventions: {error}"


def set_ablate_with(runs: VisitorRuns, run: str | None, interventions: InterventionSpec, ablate_with: Any) -> Updates:
    """Change the replacement for ablated heads' outputs, and show the head importance saved for it."""
    ablate_with = parse_ablation(ablate_with)  # Gradio lets None through
    value = saved_value(runs[run], ablate_with) if run else None
    spec = replace(interventions.for_run(run), ablate_with=ablate_with)
    return _state(measuring=False) | {"interventions": spec, "grid": gr.update(value=value, measuring=False)}


def toggle(runs: VisitorRuns, run: str | None, interventions: InterventionSpec, name: str) -> Updates:
    """Ablate a head or a layer, or restore it; return the updates of the interventions and of the message."""
    return _changed(runs, run, lambda heads: interventions.for_run(run).toggled(name, heads))


def set_pattern(
    runs: VisitorRuns,
    run: str | None,
    interventions: InterventionSpec,
    head: str | None,
    pattern: str,
    position: float | None,
) -> Updates:
    """Replace a head's attention pattern, or restore it; return the updates of the interventions and the message."""
    if pattern == "position":
        if position is None or not float(position).is_integer() or not 0 <= position <= MAX_POSITION:
            given = "is empty; it" if position is None else f"{position:g}"
            return {"message": problem(f"Position {given} must be a whole number from 0 to {MAX_POSITION:,}")}
        pattern = f"position {position:.0f}"
    name = None if pattern == AS_TRAINED else pattern
    return _changed(runs, run, lambda heads: interventions.for_run(run).with_pattern(head or "", name, heads))


def measure(runs: VisitorRuns, run: str | None, interventions: InterventionSpec) -> Iterator[Updates]:
    """Measure a run's head importance; yield the value of the grid after each cell, or the message."""
    if run is None:
        yield {"message": NO_RUN}
        return
    try:
        for value in Measurement.of(runs[run], interventions.ablate_with).values():
            yield {"grid": value}
    except LabError as error:
        yield {"message": problem(error)}


def _state(*, measuring: bool) -> Updates:
    """Return the updates of the grid and of the buttons Measure and Cancel."""
    return {
        "grid": gr.update(measuring=measuring),
        "measure": gr.update(interactive=not measuring),
        "cancel": gr.update(interactive=measuring),
    }


def _cleared(interventions: InterventionSpec) -> Updates:
    return {"interventions": interventions.cleared(), "message": {"text": ""}}


def _changed(runs: VisitorRuns, run: str | None, change: Callable[[tuple[Head, ...]], InterventionSpec]) -> Updates:
    if run is None:
        return {"message": NO_RUN}
    try:
        return {"interventions": change(heads_of_run(runs[run])), "message": {"text": ""}}
    except LabError as error:
        return {"message": problem(error)}
