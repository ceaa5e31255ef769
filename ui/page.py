"""The page: the run bar, the tabs, and the events that connect them through the current run and the current decode."""

from functools import partial
from typing import Any
from urllib.parse import urlencode

import gradio as gr

from core.generation import GREEDY
from core.runs import ACTIVE
from core.server.access import VisitorRuns
from ui import api, interventions
from ui.components.attention_viewer import attention_value
from ui.components.run_bar import run_bar
from ui.components.run_menu import run_menu, run_menu_value
from ui.current_decode import CurrentDecode
from ui.events import LATEST, QUIET
from ui.forms import strategy_form
from ui.interventions import NO_INTERVENTIONS, InterventionSpec
from ui.run_info import can_open
from ui.serving.errors import show_errors
from ui.serving.guarded_page import GuardedPage
from ui.tabs import attention, compare, decode, lessons, report, train
from ui.web import script

MAX_INPUT = 2_000  # characters of an input in the page's address
TABS = ("train", "decode", "attention", "report", "compare", "lessons")  # the ids that an address may select
_HELP = """
A *run* is one model and its training. **Train**: choose a preset (a task with a model and settings) and watch the model
learn. **Decode**: type an input and see the model's answer, even during training. **Attention**: see which tokens each
attention head attends to for that answer. **Report**: measure accuracy on inputs that the model was not trained on.
**Compare**: give several runs the same inputs, including longer ones than in training. **Lessons**: bugs that raise no
error: predict the effect of each, then compare it with a correct run.
Training continues when you close this page; open it again to see the run.
"""


def build_page(runs: VisitorRuns) -> gr.Blocks:
    """Build the page over some runs."""
    # Downloads and pictures are temporary files: every minute, Gradio deletes those older than ten minutes
    with GuardedPage(title="Attention Lab", analytics_enabled=False, delete_cache=(60, 600)) as page:
        api.expose(runs)  # first, so that the page's own events do not take the endpoints' names
        run = gr.State(None)  # str | None: the current run's name
        current_decode = gr.State(None)  # CurrentDecode | None: what the Decode and Attention tabs show
        spec = gr.State(NO_INTERVENTIONS)  # InterventionSpec: the requested interventions
        with gr.Row(elem_id="header"):
            gr.Markdown("# Attention Lab\nTrain a small model, decode with it, inspect every attention head.")
            theme = gr.Button("Light / dark", size="sm", scale=0, min_width=110, elem_id="theme")
        bar = run_bar(runs)
        menu = run_menu(runs)
        address = gr.Textbox(visible="hidden", elem_id="address")
        with gr.Tabs(selected="decode", elem_id="tabs") as tabs:
            with gr.Tab("Train", id="train"):
                train_tab = train.build(runs, run)
            with gr.Tab("Decode", id="decode"):
                decode_tab = decode.build()
            with gr.Tab("Attention", id="attention"):
                ends = [run.change, bar.status]  # they replace the grid that a measurement is filling in
                attention_tab = attention.build(runs, run, spec, decode_tab.interventions, ends=ends)
            with gr.Tab("Report", id="report"):
                report_tab = report.build(runs, run)
            with gr.Tab("Compare", id="compare"):
                picker = compare.build(runs)
            with gr.Tab("Lessons", id="lessons"):
                lessons.build(runs, run)
        with gr.Accordion("What is this?", open=False):
            gr.Markdown(_HELP)

        theme.click(None, None, None, js=script("switch_theme"), api_visibility="private")
        address.change(None, address, address, js=script("keep_address"), api_visibility="private")

        # Decoding
        strategy = decode_tab.strategy
        decode_inputs = [run, decode_tab.text, spec, *strategy.all]
        decode_outputs = [  # ``_decode_values`` returns their values
            current_decode,
            *decode_tab.results,
            spec,
            *attention_tab.decode_outputs,
            attention_tab.viewer,
            address,
        ]
        # The events share one queue, as their function is the same
        decode_event: dict[str, Any] = {
            "fn": partial(_decode, runs),
            "inputs": decode_inputs,
            "outputs": decode_outputs,
            "concurrency_limit": 4,
            **QUIET,
        }
        triggers = [decode_tab.button.click, decode_tab.text.submit, strategy.prefix.submit]
        triggers += [each.input for each in (strategy.kind, *strategy.controls)]
        gr.on(triggers, **decode_event, **LATEST)
        decode_tab.compare.click(
            partial(decode.compare, runs),
            [run, spec, decode_tab.text, strategy.prefix, *strategy.controls],
            [decode_tab.compare_message, decode_tab.comparison],
            concurrency_limit=4,
            **QUIET,
        )
        decode_tab.examples.click(lambda sample: sample[0], decode_tab.examples, decode_tab.text, **QUIET).then(
            **decode_event
        )
        for change in attention_tab.interventions_changed:
            change.then(**decode_event)

        # The current run
        run_outputs = [menu, *train_tab.run_outputs, *report_tab.run_outputs, *attention_tab.run_outputs]
        run.change(
            show_errors(partial(_select_run, runs)),
            [run, spec],
            [bar, decode_tab.examples, *run_outputs],
            concurrency_limit=None,
            **QUIET,
        ).then(**decode_event)
        bar.pick(_picked_run, None, run, **QUIET)
        menu.gone(partial(_run_to_open, runs), None, run, **QUIET)
        bar.status(partial(_run_updates, runs), [run, spec], run_outputs, **QUIET).then(**decode_event)

        # Links to the Attention tab
        viewer_outputs = [tabs, attention_tab.viewer]
        decode_tab.answer.inspect(_inspect_step, current_decode, viewer_outputs, **QUIET)
        decode_tab.thumbnails.pick(_inspect_head, current_decode, viewer_outputs, **QUIET)
        train_tab.model.inspect(_inspect_block, current_decode, viewer_outputs, **QUIET)

        # Gradio passes event data and requests to annotated parameters only, and finds no annotations on a partial
        def inspect_failure(run: str | None, event: gr.EventData) -> list[Any]:
            return _inspect_failure(runs, run, event)

        report_tab.gallery.inspect(
            inspect_failure,
            run,
            [tabs, decode_tab.text, *strategy.all, *decode_outputs],
            concurrency_limit=4,
            **QUIET,
        )

        # Opening the page
        def open_page(request: gr.Request) -> list[Any]:
            return _open(runs, dict(request.query_params))

        opened = page.load(open_page, None, [run, tabs, decode_tab.text, spec, *strategy.all, picker], **QUIET)
        train_tab.form.open_on(opened.then, partial(train.first_draft, runs), [run])
        for each in ("keep_tab", "radio_keys"):
            page.load(None, None, None, js=script(each), api_visibility="private")
    return page


def _open(runs: VisitorRuns, query: dict[str, str]) -> list[Any]:
    """Return the first values of the page: what its address says, else an active run, else the shipped one."""
    run = _run_to_open(runs, query.get("run"))
    is_active = run is not None and runs.info(run).status in ACTIVE
    strategy = strategy_form.from_query(query)
    text = query.get("input", "")[:MAX_INPUT] or (decode.examples_of(runs, run)[0][0] if run else "")
    default_tab = "train" if is_active or run is None else "decode"
    return [
        run,
        gr.Tabs(selected=query["tab"] if query.get("tab") in TABS else default_tab),
        text,
        interventions.from_query(query, run),
        strategy.kind,
        query.get("prefix", "")[:MAX_INPUT],
        *strategy_form.controls_for(strategy),
        compare.picker_value(runs, query),
    ]


def _run_to_open(runs: VisitorRuns, requested: str | None = None) -> str | None:
    if requested and can_open(runs, requested):
        return requested
    names = runs.names()
    active = [name for name in names if runs.info(name).status in ACTIVE]
    shipped = [name for name in names if runs.info(name).shipped]
    return next(iter(active + shipped + names), None)


def _picked_run(event: gr.EventData) -> str:
    return str(event.run)


def _select_run(runs: VisitorRuns, run: str | None, spec: InterventionSpec) -> list[Any]:
    """Return the updates that make a run the current one everywhere."""
    examples = gr.Dataset(samples=decode.examples_of(runs, run))
    return [{"current": run}, examples, *_run_updates(runs, run, spec)]


def _run_updates(runs: VisitorRuns, run: str | None, spec: InterventionSpec) -> list[Any]:
    return [
        run_menu_value(runs, run),
        *train.run_updates(runs, run),
        *report.run_updates(runs, run),
        *attention.run_updates(runs, run, spec),
    ]


def _decode(
    runs: VisitorRuns, run: str | None, text: str, spec: InterventionSpec = NO_INTERVENTIONS, *strategy: Any
) -> list[Any]:
    """Decode the current input with the current run; return the updates of the Decode and Attention tabs.

    Args:
        spec: requested interventions; ignored if they are of another run or do not fit.
        strategy: values of the strategy form: kind, prefix, settings.
    """
    applied, error = attention.applicable(runs, run, spec)
    current_decode, results = decode.decode(runs, run, text or "", *strategy, interventions=applied)
    return _decode_values(
        current_decode,
        results,
        gr.skip() if applied == spec else applied,
        attention.decode_updates(current_decode, applied, error),
        attention_value(current_decode, run=run),
        _address(run, text, applied, *strategy),
    )


def _decode_values(
    current_decode: CurrentDecode | None,
    results: list[Any],
    spec: Any,
    attention_updates: list[Any],
    viewer: dict[str, Any],
    address: str,
) -> list[Any]:
    """Return the values of ``decode_outputs``, in order."""
    return [current_decode, *results, spec, *attention_updates, viewer, address]


def _address(run: str | None, text: str, spec: InterventionSpec, *strategy: Any) -> str:
    """Return the query string that restores this decode; the attention viewer adds the selected view."""
    query = {"run": run, "input": text} | spec.for_run(run).as_query()
    if strategy:
        kind, prefix, *values = strategy
        query |= strategy_form.as_query(kind, prefix, values)
    return urlencode({name: value for name, value in query.items() if value})


def _inspect_step(current_decode: CurrentDecode | None, event: gr.EventData) -> list[Any]:
    return _open_attention(_last_layer_value(current_decode, row=int(event.step)))


def _inspect_head(current_decode: CurrentDecode | None, event: gr.EventData) -> list[Any]:
    return _open_attention(_last_layer_value(current_decode, head=int(event.head)))


def _inspect_block(current_decode: CurrentDecode | None, event: gr.EventData) -> list[Any]:
    return _open_attention(attention_value(current_decode, block=event.block, layer=int(event.layer)))


def _open_attention(value: dict[str, Any]) -> list[Any]:
    """Return the updates that select the Attention tab and show a value in its viewer."""
    return [gr.Tabs(selected="attention"), value]


def _last_layer_value(current_decode: CurrentDecode | None, **selection: Any) -> dict[str, Any]:
    """Return the attention viewer's value with the last layer that attends to the source selected."""
    if current_decode is None:
        return attention_value(None)
    block = current_decode.source_block
    return attention_value(current_decode, block=block, layer=current_decode.num_layers(block), **selection)


def _inspect_failure(runs: VisitorRuns, run: str | None, event: gr.EventData) -> list[Any]:
    """Decode a wrong answer again, greedily and without interventions, and select its first wrong step."""
    if event.run != run:
        raise gr.Error(
            "These wrong answers belong to a different run. In the Report tab, search for wrong answers again.",
            print_exception=False,
        )
    text = str(event.text)[:MAX_INPUT]
    current_decode, results = decode.decode(runs, run, text)
    last = len(current_decode.inspection.steps) - 1 if current_decode else 0  # newer weights may answer in fewer steps
    values = _decode_values(
        current_decode,
        results,
        NO_INTERVENTIONS,
        attention.decode_updates(current_decode, NO_INTERVENTIONS),
        _last_layer_value(current_decode, row=min(int(event.step), last)),
        _address(run, text, NO_INTERVENTIONS),
    )
    return [gr.Tabs(selected="attention"), text, "greedy", "", *strategy_form.controls_for(GREEDY), *values]
