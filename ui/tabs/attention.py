"""What the heads are worth: knocked out of the current decode, measured one by one, made to look elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr
from gradio.events import Dependency

from core.interpret.interventions import Ablation
from core.models.heads import Head
from core.server import Runs
from core.storage.errors import LabError
from ui.attention_blocks import Block
from ui.components.answer_comparison import edited_value
from ui.components.attention_viewer import attention_value
from ui.components.head_importance import Measuring, head_importance, remembered
from ui.components.notice import notice
from ui.current_decode import Seen
from ui.events import CPU, QUIET
from ui.interventions import RequestedInterventions, heads_in

AS_LEARNED = "as learned"
NO_RUN = {"text": "No run yet: train one first."}
NO_CROSS = {"text": "This model has no cross-attention, so none of its heads can be forced."}
CANCELLED = {"text": "Cancelled. What was measured until then is not kept."}
_WHAT_IT_IS = """
### What the heads are worth
Attention is not by itself an explanation of an answer: knocking a head out tests it. Press a head, or *all* of a layer,
and the answer is written again without it; measure them all to see how many answers need each.
"""


@dataclass(frozen=True)
class HeadsPanel:
    """What of the panel the page sets, and what it must answer to.

    Attributes:
        of_run: what follows the current run, in the order of ``run_shown``.
        of_decode: what a decode changes, in the order of ``decode_shown``.
        changed: events after which the current decode is with other heads.
    """

    of_run: list
    of_decode: list
    changed: list[Dependency]


def build(
    runs: Runs, run: gr.State, asked: gr.State, lines: Sequence[gr.HTML], *, ends: Sequence[Callable]
) -> HeadsPanel:
    """Build the panel and wire its own events.

    Args:
        run: holds the current run's name.
        asked: holds what is done to its heads.
        lines: show a decode with and without that; their button puts all heads back.
        ends: events after which the panel shows something else than is being measured.
    """
    gr.Markdown(_WHAT_IT_IS)
    with gr.Row(elem_classes="actions"):
        ablation = gr.Radio(
            [("zero", "zero"), ("its mean", "mean")],
            value="zero",
            label="In place of a head's output",
            elem_id="ablation",
            interactive=True,
            scale=0,
            min_width=240,
        )
        start = gr.Button("Measure all heads", variant="primary", elem_id="measure-heads", min_width=150)
        cancel = gr.Button("Cancel", interactive=False, elem_id="cancel-heads", min_width=90)
    message = notice(elem_id="heads-message")
    grid = head_importance()
    of_force, forcing = _build_force(runs, run, asked, message)

    state = [grid, start, cancel]
    measuring = start.click(lambda: [{"text": ""}, *_state(measuring=True)], None, [message, *state], **QUIET).then(
        partial(measure, runs), [run, asked], [grid, message], **QUIET, **CPU
    )
    measuring.then(lambda: _state(measuring=False), None, state, **QUIET)
    for ending in (cancel.click, ablation.input, *ends):
        ending(None, None, None, cancels=[measuring], api_visibility="private")
    cancel.click(lambda: [CANCELLED, *_state(measuring=False)], None, [message, *state], **QUIET)
    changed = [
        ablation.input(
            partial(with_ablation, runs), [run, asked, ablation], [asked, *state], trigger_mode="always_last", **QUIET
        ),
        grid.toggle(_toggle(runs), [run, asked], [asked, message], trigger_mode="always_last", **QUIET),
        forcing,
        *(line.press(lambda now: [now.restored(), {"text": ""}], asked, [asked, message], **QUIET) for line in lines),
    ]
    return HeadsPanel([*state, ablation, *of_force], [message, grid, *lines], changed)


def _build_force(runs: Runs, run: gr.State, asked: gr.State, message: gr.HTML) -> tuple[list, Dependency]:
    """Build the controls that make a head look elsewhere; return what follows the run, and what applies them."""
    with gr.Accordion("Force a head of cross-attention to look elsewhere", open=False, elem_id="force"):
        missing = notice(elem_id="force-missing")
        with gr.Column(visible=False) as controls:
            head = gr.Radio([], label="Head", elem_id="force-head", interactive=True)
            pattern = gr.Radio(
                [
                    ("along the diagonal, token by token", "diagonal"),
                    ("along the anti-diagonal, from the end", "anti-diagonal"),
                    ("always at one position", "position"),
                    ("where it learned to", AS_LEARNED),
                ],
                value="diagonal",
                label="Looks",
                elem_id="force-pattern",
                interactive=True,
            )
            position = gr.Number(
                1,
                precision=0,
                label="Position",
                info="column of the map, 0 is <BOS>",
                visible=False,
                elem_id="position",
            )
            with gr.Row(elem_classes="actions"):
                button = gr.Button("Apply", elem_id="force-apply", min_width=90)
    pattern.input(
        lambda kind: gr.update(visible=kind == "position"), pattern, position, trigger_mode="always_last", **QUIET
    )
    applied = button.click(partial(force, runs), [run, asked, head, pattern, position], [asked, message], **QUIET)
    return [head, controls, missing], applied


def run_shown(runs: Runs, run: str | None, asked: RequestedInterventions) -> list[Any]:
    """Return what the panel shows of the current run: what was measured of it, and which heads can be forced."""
    _, start, cancel = _state(measuring=False)
    if run is None:
        return [gr.update(value=None, measuring=False), start, cancel, gr.skip(), gr.skip(), gr.skip(), NO_RUN]
    cross = [str(head) for head in heads_in(runs, run) if head.block == "cross"]
    return [
        gr.update(value=remembered(runs, run, asked.ablation), measuring=False),
        start,
        cancel,
        asked.ablation,
        gr.update(choices=cross, value=cross[0] if cross else None),
        gr.update(visible=bool(cross)),
        {"text": ""} if cross else NO_CROSS,
    ]


def decode_shown(seen: Seen | None, asked: RequestedInterventions, problem: str = "") -> list[Any]:
    """Return what a decode changes: what was wrong with what is done to heads, the pressed cells, and both lines."""
    line = edited_value(seen)
    interventions = {"out": list(asked.without), "forced": dict(each.split("=") for each in asked.force)}
    return [_problem(problem) if problem else gr.skip(), gr.update(interventions=interventions), line, line]


def possible(runs: Runs, run: str | None, asked: RequestedInterventions) -> tuple[RequestedInterventions, str]:
    """Return what of the asked interventions can be done to the current run, and what is wrong with them, or ""."""
    asked = asked.of_run(run)
    if not asked or run is None:
        return asked, ""
    try:
        return asked.checked(heads_in(runs, run)), ""
    except LabError as error:
        return asked.restored(), f"All heads are as they were: {error}"


def with_ablation(runs: Runs, run: str | None, asked: RequestedInterventions, ablation: Ablation) -> list[Any]:
    """Put something else in place of knocked-out heads' outputs, and show what was measured so."""
    value = remembered(runs, run, ablation) if run else None
    _, start, cancel = _state(measuring=False)
    return [replace(asked.of_run(run), ablation=ablation), gr.update(value=value, measuring=False), start, cancel]


def toggle(runs: Runs, run: str | None, asked: RequestedInterventions, name: str) -> tuple[Any, dict[str, Any]]:
    """Knock out a head or a layer, or put it back; return the interventions, and what is wrong."""
    return _changed(runs, run, lambda heads: asked.of_run(run).toggled(name, heads))


def force(
    runs: Runs, run: str | None, asked: RequestedInterventions, head: str | None, pattern: str, position: float | None
) -> tuple[Any, dict[str, Any]]:
    """Make a head look where a pattern says, or as it learned to; return the interventions, and what is wrong."""
    at = "" if position is None else f"{position:g}"
    said = {AS_LEARNED: None, "position": f"position {at}"}.get(pattern, pattern)
    return _changed(runs, run, lambda heads: asked.of_run(run).forced(head or "", said, heads))


def measure(runs: Runs, run: str | None, asked: RequestedInterventions) -> Iterator[tuple[Any, Any]]:
    """Measure a run without each head and each layer, showing each as it comes; or tell why not."""
    if run is None:
        yield gr.skip(), NO_RUN
        return
    try:
        for value in Measuring.of(runs, run, asked.ablation).shown():
            yield value, gr.skip()
    except LabError as error:
        yield gr.skip(), _problem(str(error))


def _state(*, measuring: bool) -> list[dict[str, Any]]:
    """Return the grid and both buttons while something is measured, or while nothing is."""
    return [gr.update(measuring=measuring), gr.update(interactive=not measuring), gr.update(interactive=measuring)]


def _toggle(runs: Runs) -> Callable:
    def toggle_cell(
        run: str | None, asked: RequestedInterventions, event: gr.EventData
    ) -> Any:  # what Gradio hands an event to
        return toggle(runs, run, asked, str(event.name))

    return toggle_cell


def _changed(
    runs: Runs, run: str | None, change: Callable[[tuple[Head, ...]], RequestedInterventions]
) -> tuple[Any, dict[str, Any]]:
    if run is None:
        return gr.skip(), NO_RUN
    try:
        return change(heads_in(runs, run)), {"text": ""}
    except LabError as error:
        return gr.skip(), _problem(str(error))


def _problem(text: str) -> dict[str, Any]:
    return {"text": text, "problem": True}


def attention_of(
    seen: Seen | None,
    block: Block | None = None,
    layer: int | None = None,
    *,
    run: str | None = None,
    head: int | None = None,
    row: int | None = None,
) -> list[Any]:
    """Return what the tab is given of a decode.

    Args:
        block, layer, head, row: what of it to show, layer and head numbered from 1, rows from 0; what is left out
            stays as the visitor chose it, and what this model does not have gives way to what it has.
        run: the current run, where there is no decode.
    """
    if seen is None:
        return [{"run": run, "decode": None, "open": {}}]
    asked = {"block": block, "layer": layer, "head": head, "row": row}
    opened = {name: value for name, value in asked.items() if value is not None}
    if opened:
        opened["at"] = time.time_ns() // 1_000_000  # to look at the same place again is something new
    return [attention_value(seen, opened)]
