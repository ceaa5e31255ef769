"""The page: the run bar, the tabs, and the events that connect them through the current run and the current decode."""

import time
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import gradio as gr

from core.generation import GREEDY
from core.runs import ACTIVE
from core.runs.names import readable_name
from core.server.access import VisitorRuns
from core.storage.error_messages import short_repr, shortened
from core.storage.errors import InputError
from core.teaching.attention_lessons import attention_lessons
from ui import api, interventions
from ui.attention_blocks import BLOCK_NAMES
from ui.components.attention_viewer import attention_value
from ui.components.page_address import page_address
from ui.components.run_bar import current_run, run_bar, shipped_translator
from ui.components.setting_fields import WITH_KEPT
from ui.current_decode import CurrentDecode
from ui.events import LATEST, PRESSED, QUIET, event_number, event_text
from ui.forms import strategy_form
from ui.forms.preset_form import kept_in
from ui.interventions import NO_INTERVENTIONS, InterventionSpec
from ui.link_values import problems_of_link
from ui.run_info import can_open
from ui.serving.errors import show_errors
from ui.serving.guarded_page import GuardedPage
from ui.tabs import attention, compare, decode, lessons, report, sweep, train
from ui.updates import Updates, by_name

MAX_PARAMETER = 2_000  # characters in the page's address; servers refuse long ones, also on a reload


@dataclass(frozen=True)
class DecodeRequest:
    """A decode that the visitor asked for, to be repeated when the run has new weights.

    Attributes:
        run: the run's name.
        text: the input.
        strategy: values of the strategy form: kind, prefix, settings; empty for greedy decoding.
    """

    run: str | None
    text: str
    strategy: tuple[Any, ...]


@dataclass(frozen=True)
class Failure:
    """A wrong answer of the gallery that the visitor opens.

    Attributes:
        run: the run's name.
        text: the input.
        step: the first wrong decoding step, counted from 0.
    """

    run: str
    text: str
    step: int


def build_page(runs: VisitorRuns, *, reads_paths: bool = False) -> gr.Blocks:
    """Build the page over some runs.

    Args:
        reads_paths: whether models can be imported from paths of this computer; see ``ui.forms.import_model``.
    """
    # Downloads and pictures are temporary files: every minute, Gradio deletes those older than ten minutes
    with GuardedPage(title="Attention Lab", analytics_enabled=False, delete_cache=(60, 600), fill_width=True) as page:
        api.expose(runs)  # first, so that the page's own events do not take the endpoints' names
        run = gr.State(None)  # str | None: the current run's name
        current_decode = gr.State(None)  # CurrentDecode | None: what the tabs Decode and Look inside show
        requested = gr.State(None)  # DecodeRequest | None: the last decode that was asked for
        spec = gr.State(NO_INTERVENTIONS)  # InterventionSpec: the requested interventions
        bar = run_bar(runs)
        address = page_address()
        with gr.Column(elem_id="main"):
            ask = decode.build_input()
            with gr.Tabs(selected="train", elem_id="tabs", overflow_behavior="wrap") as tabs:
                with gr.Tab("Train", id="train", elem_id="tab-train"):
                    train_tab = train.build(runs, run, bar, reads_paths=reads_paths)
                with gr.Tab("Decode", id="decode"):
                    decode_tab = decode.build()
                with gr.Tab("Look inside", id="attention"):
                    ends = [run.change, bar.status]  # they replace the grid that a measurement is filling in
                    attention_tab = attention.build(runs, run, spec, decode_tab.interventions, ends=ends)
                with gr.Tab("Report", id="report"):
                    report_tab = report.build(runs, run)
                with gr.Tab("Compare", id="compare"):
                    picker = compare.build(runs)
                with gr.Tab("Sweep", id="sweep"):
                    sweep_view = sweep.build(runs, train_tab.form)
                with gr.Tab("Learn", id="lessons"):
                    lessons.build(runs, run, bar)

        # Decoding
        strategy = decode_tab.strategy
        decode_inputs = [run, ask.text, spec, *strategy.all]
        decode_outputs = {
            "current_decode": current_decode,
            "requested": requested,
            "message": ask.message,
            **decode_tab.outputs,
            "spec": spec,
            **attention_tab.decode_outputs,
            "viewer": attention_tab.viewer,
            "address": address,
        }
        # The events share one queue, as their function is the same
        decode_event: dict[str, Any] = {
            "fn": by_name(partial(_decode_as_asked, runs), decode_outputs),
            "inputs": decode_inputs,
            "outputs": list(decode_outputs.values()),
            "concurrency_limit": 4,
            **QUIET,
            **LATEST,
        }
        triggers = [ask.button.click, ask.text.submit, strategy.prefix.submit]
        triggers += [each.input for each in (strategy.kind, *strategy.controls)]
        gr.on(triggers, **decode_event)
        decode_tab.compare.click(
            by_name(partial(decode.compare, runs), decode_tab.outputs),
            [run, spec, ask.text, strategy.prefix, *strategy.controls],
            list(decode_tab.outputs.values()),
            concurrency_limit=4,
            **QUIET,
        )
        decode_tab.examples.click(_example, decode_tab.examples, ask.text, **QUIET, **LATEST).then(**decode_event)
        for change in attention_tab.interventions_changed:
            # Its result is beside the pressed head
            change.then(**decode_event | {"fn": by_name(partial(_decode_part, runs), decode_outputs)})

        # The current run
        run_outputs = train_tab.run_outputs | report_tab.run_outputs | attention_tab.run_outputs
        selected = {"examples": decode_tab.examples, **run_outputs}
        refreshed = gr.State(None)  # the request that was decoded last without being asked for
        again_outputs = decode_outputs | {"refreshed": refreshed, "text": ask.text}
        catch_up_event: dict[str, Any] = decode_event | {
            "fn": by_name(partial(_decode_requested_meanwhile, runs), decode_outputs),
            "inputs": [refreshed, requested, *decode_inputs],
        }
        again_event: dict[str, Any] = decode_event | {
            "fn": by_name(partial(_decode_again, runs), again_outputs),
            "inputs": [requested, *decode_inputs],
            "outputs": list(again_outputs.values()),
        }
        changed = gr.State(0)  # when the current run's status changed last
        bar.status(lambda: time.time_ns(), None, changed, **QUIET, **LATEST)
        # One event, so that the answer for a former run never replaces that for the current one
        run_shown = gr.on(
            [run.change, changed.change],
            by_name(show_errors(partial(_show_run, runs)), selected),
            [run, spec],
            list(selected.values()),
            concurrency_limit=None,
            **QUIET,
            **LATEST,
        )
        for again in (run_shown.then(**again_event), bar.weights(**again_event)):
            again.then(**catch_up_event)
        current = {"run": run, "bar": bar}
        for picked in (bar.pick, sweep_view.pick):
            picked(by_name(_picked_run, current), None, list(current.values()), **QUIET, **PRESSED)
        bar.gone(by_name(lambda: current_run(_run_to_open(runs)), current), None, list(current.values()), **QUIET)

        # Links to the tab Look inside
        links = {"tabs": tabs, "viewer": attention_tab.viewer}
        for link, opened in (
            (decode_tab.answer.inspect, _inspect_step),
            (decode_tab.thumbnails.pick, _inspect_head),
            (train_tab.model.inspect, _inspect_block),
        ):
            link(by_name(opened, links), current_decode, list(links.values()), **QUIET, **PRESSED)
        decode_tab.translations.pick(_picked_sentence, None, ask.text, **QUIET, **PRESSED).then(
            **decode_event | {"fn": by_name(partial(_decode_part, runs, asked=True), decode_outputs)}
        )

        failure = gr.State(None)
        shown = {"tabs": tabs, "text": ask.text, **strategy.outputs, **decode_outputs}
        report_tab.gallery.inspect(_picked_failure, None, failure, **QUIET, **PRESSED).success(
            by_name(partial(_inspect_failure, runs), shown),
            [run, failure],
            list(shown.values()),
            concurrency_limit=4,
            **QUIET,
            **LATEST,
        )

        # Opening the page, in one event; its script opens the tab that the address names
        first_text = gr.Textbox(visible="hidden")  # the input, unless one was typed before this answer
        first = {"run": run, "bar": bar, "text": first_text, "spec": spec, **strategy.outputs, "compared": picker}
        form = train_tab.form
        first |= {f"form_{name}": component for name, component in form.outputs.items()}

        def open_page(submitted: Any, request: gr.Request) -> Updates:
            updates = _open(runs, dict(request.query_params))
            linked = request.query_params.get("preset", "")
            draft = form.opened(lambda: train.first_draft(runs, updates["run"], kept_in(submitted), linked))
            return updates | {f"form_{name}": value for name, value in draft.items()}

        page.load(by_name(open_page, first), form.fields, list(first.values()), js=WITH_KEPT, **QUIET).then(
            None, [first_text, ask.text], ask.text, js="(first, typed) => typed || first", **QUIET
        )
    return page


def _open(runs: VisitorRuns, query: dict[str, str]) -> Updates:
    """Return the first values of the page: what its address says, else an active run, else the first lesson's."""
    named = query.get("run")
    is_missing = bool(named and not can_open(runs, named))
    run = None if is_missing else named or _run_to_open(runs)
    strategy = strategy_form.from_query(query)
    text = query.get("input", "") or _first_example(runs, run)
    missing = shortened(readable_name(named)) if named and is_missing else None
    unread = problems_of_link(runs, query, run)
    return {
        **current_run(run, missing=missing, unread=unread, used=["preset"], translator=shipped_translator(runs)),
        "text": text,
        "spec": interventions.from_query(query, run),
        **strategy_form.shown(strategy, query.get("prefix", "")),
        "compared": compare.picker_value(runs, query),
    }


def _run_to_open(runs: VisitorRuns) -> str | None:
    newest, last_first = runs.find().rows, reversed(list(runs))
    active = [row.name for row in newest if row.progress.info.status in ACTIVE]
    shipped = list(takewhile(lambda name: runs[name].info.shipped, last_first))[::-1]  # they are last
    shipped.sort(key=lambda name: (name != attention_lessons()[0].run, runs[name].info.parameters))
    return next(iter([*active, *shipped, *(row.name for row in newest)]), None)


def _first_example(runs: VisitorRuns, run: str | None) -> str:
    examples = decode.examples_of(runs[run]) if run else []
    return examples[0][0] if examples else ""


def _example(sample: list[str] | None) -> str:
    if not sample:
        raise InputError("the example is missing: the page sends its number")
    return sample[0]


def _picked_run(event: gr.EventData) -> Updates:
    return current_run(event_text(event, "run") or None)


def _show_run(runs: VisitorRuns, run: str | None, spec: InterventionSpec) -> Updates:
    """Return the updates of the tabs that show the current run, after it became another one or has another status."""
    examples = gr.Dataset(samples=decode.examples_of(runs[run]) if run else [])
    of_tabs = train.run_updates(runs, run) | report.run_updates(runs, run) | attention.run_updates(runs, run, spec)
    return {"examples": examples} | of_tabs


def _decode_as_asked(runs: VisitorRuns, run: str | None, text: str, *inputs: Any) -> Updates:
    """Decode because the visitor asked for it; see ``_decode``."""
    return _decode(runs, run, text, *inputs, asked=True)


def _decode(
    runs: VisitorRuns,
    run: str | None,
    text: str,
    spec: InterventionSpec = NO_INTERVENTIONS,
    *strategy: Any,
    asked: bool = False,
) -> Updates:
    """Decode the current input with the current run; return the updates of the tabs Decode and Look inside.

    Args:
        spec: requested interventions; ignored if they are of another run or do not fit.
        strategy: values of the strategy form: kind, prefix, settings.
        asked: see ``attention_value``.
    """
    applied, error = attention.applicable(runs, run, spec)
    current_decode, results = decode.decode(runs, run, text or "", *strategy, interventions=applied)
    updates = results | attention.decode_updates(current_decode, applied, error)
    updates |= {
        "current_decode": current_decode,
        "requested": DecodeRequest(run, text or "", strategy),
        "viewer": attention_value(
            current_decode,
            run=run,
            problem=_problem_in(results),
            asked=asked,
            only_replay=run is not None and can_open(runs, run) and runs[run].preset.is_watched,
        ),
        "address": _address(run, text, applied, *strategy),
    }
    return updates if applied == spec else updates | {"spec": applied}


def _decode_again(
    runs: VisitorRuns,
    requested: DecodeRequest | None,
    run: str | None,
    text: str,
    spec: InterventionSpec,
    *strategy: Any,
) -> Updates:
    """Decode the last requested input again, or the current one with another run than before.

    Returns:
        The updates of ``_unasked``, and of the input if the other run cannot read it; other text is left alone, since
        more may be typed by now.
    """
    if requested is not None and requested.run == run:
        return _unasked(runs, requested, spec)
    shown, note = text, ""
    if run is not None:
        shown, note = decode.readable_input(runs[run], text or "")
    updates = _unasked(runs, DecodeRequest(run, shown or "", strategy), spec)
    if note:
        updates["message"] = {"text": f"{note} {updates['message'].get('text', '')}".strip()}
    return updates if shown == text else updates | {"text": shown}


def _unasked(runs: VisitorRuns, request: DecodeRequest, spec: InterventionSpec) -> Updates:
    """Decode what the visitor did not ask for now; what they request during the decode stays the last request."""
    updates = _decode(runs, request.run, request.text, spec, *request.strategy)
    return updates | {"refreshed": updates.pop("requested")}


def _decode_requested_meanwhile(
    runs: VisitorRuns,
    refreshed: DecodeRequest | None,
    requested: DecodeRequest | None,
    run: str | None,
    text: str,
    spec: InterventionSpec,
    *strategy: Any,
) -> Updates:
    """Decode what was requested during a decode that nobody asked for, whose answer may have come later."""
    if refreshed is None or refreshed.run != run or requested == refreshed:
        return {}
    if requested is None or requested.run != run:
        return {"requested": refreshed}
    return _decode(runs, run, requested.text, spec, *requested.strategy)


def _problem_in(results: Updates) -> str:
    """Return the error that a decode ended with, or ""."""
    message = results["message"]
    return message["text"] if message.get("problem") else ""


def _address(run: str | None, text: str, spec: InterventionSpec, *strategy: Any) -> dict[str, Any]:
    """Return the address that restores this decode; the attention viewer adds the selected view."""
    kind, prefix, *values = strategy or ("greedy", "", *strategy_form.default_values())
    query = strategy_form.as_query(kind, prefix, values) | spec.for_run(run).as_query()
    parameters = {"input": text or ""} | query
    if run is not None:  # else the address keeps what the browser knows, also when the server has just been restarted
        parameters["run"] = run
    return {"parameters": {name: "" if len(value) > MAX_PARAMETER else value for name, value in parameters.items()}}


def _inspect_step(current_decode: CurrentDecode | None, event: gr.EventData) -> Updates:
    return _open_attention(_last_layer_value(current_decode, row=event_number(event, "step")))


def _picked_sentence(event: gr.EventData) -> str:
    """Return a sentence of the input as the new input."""
    return event_text(event, "text")


def _decode_part(runs: VisitorRuns, *inputs: Any, asked: bool = False) -> Updates:
    """Decode what may be a sentence of an earlier input, whose translations then stay; see ``_decode``."""
    updates = _decode(runs, *inputs, asked=asked)
    if updates["translations"] is None:
        del updates["translations"]
    return updates


def _inspect_head(current_decode: CurrentDecode | None, event: gr.EventData) -> Updates:
    return _open_attention(_last_layer_value(current_decode, head=event_number(event, "head")))


def _inspect_block(current_decode: CurrentDecode | None, event: gr.EventData) -> Updates:
    named, layer = event_text(event, "block"), event_number(event, "layer")
    block = next((each for each in BLOCK_NAMES if each == named), None)
    if block is None:
        raise InputError(f"block={short_repr(named, 20)} is not one of {', '.join(BLOCK_NAMES)}")
    return _open_attention(attention_value(current_decode, block=block, layer=layer))


def _open_attention(value: dict[str, Any]) -> Updates:
    """Return the updates that select the tab Look inside and show a value in its viewer."""
    return {"tabs": gr.Tabs(selected="attention"), "viewer": value}


def _last_layer_value(current_decode: CurrentDecode | None, **selection: Any) -> dict[str, Any]:
    """Return the attention viewer's value with the last layer that attends to the source selected."""
    if current_decode is None:
        return attention_value(None)
    block = current_decode.source_block
    layer = None if block is None else current_decode.num_layers(block)
    return attention_value(current_decode, block=block, layer=layer, **selection)


def _picked_failure(event: gr.EventData) -> Failure:
    return Failure(event_text(event, "run"), event_text(event, "text"), event_number(event, "step"))


def _inspect_failure(runs: VisitorRuns, run: str | None, failure: Failure | None) -> Updates:
    """Decode a wrong answer again, greedily and without interventions, and select its first wrong step."""
    if failure is None or failure.run != run:
        raise gr.Error(
            "These wrong answers belong to a different run. In the Report tab, search for wrong answers again.",
            print_exception=False,
        )
    text, step = failure.text, failure.step
    current_decode, results = decode.decode(runs, run, text)
    last = len(current_decode.inspection.steps) - 1 if current_decode else 0  # newer weights may answer in fewer steps
    opened = {
        "current_decode": current_decode,
        "requested": DecodeRequest(run, text, ()),
        "viewer": _last_layer_value(current_decode, row=min(step, last)),
        "address": _address(run, text, NO_INTERVENTIONS),
        "tabs": gr.Tabs(selected="attention"),
        "text": text,
        "spec": NO_INTERVENTIONS,
    }
    shown = results | attention.decode_updates(current_decode, NO_INTERVENTIONS) | strategy_form.shown(GREEDY)
    return shown | opened
