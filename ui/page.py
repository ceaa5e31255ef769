"""The page: a bar with all runs, the tabs, and what ties them together: the current run and the current decode."""

from functools import partial
from typing import Any
from urllib.parse import urlencode

import gradio as gr

from core.generation import GREEDY
from core.runs import ACTIVE
from core.server.access import VisitorRuns
from ui import api, interventions
from ui.components.answer_comparison import answer_comparison
from ui.components.attention_viewer import attention_viewer
from ui.components.run_bar import run_bar, run_bar_value
from ui.components.run_menu import run_menu, run_menu_value
from ui.current_decode import Seen
from ui.events import QUIET
from ui.forms import strategy_form
from ui.interventions import ALL_HEADS, RequestedInterventions
from ui.run_info import can_open
from ui.serving.errors import show_errors
from ui.serving.guarded_page import GuardedPage
from ui.tabs import attention, compare, decode, lessons, report, train
from ui.tabs.attention import attention_of
from ui.web import script

MAX_INPUT = 2_000
TABS = ("train", "decode", "attention", "report", "compare", "lessons")  # their ids; their names are the same words
_HELP = """
**Train** a preset: a small model learns a task in front of you. **Decode**: type an input and let any run answer,
also one still in training. **Attention**: see where every head looked during that very decode. **Report**: have the run
measured on inputs it has never seen, and read how good it is and what its attention does. **Compare**: put runs of one
task side by side on the same inputs: who is right where the other is wrong, and how far beyond the trained lengths.
**Lessons**: bugs that train without an error message, each beside the right run; say first what it will do.
A run goes on when this page is closed; open the page again and it is there.
"""


def build_page(runs: VisitorRuns) -> gr.Blocks:
    """Build the whole page over some runs."""
    with GuardedPage(title="Attention Lab", analytics_enabled=False, delete_cache=(60, 600)) as page:
        api.expose(runs)  # first, so that the page's own events do not take its names
        run, seen, interventions = gr.State(None), gr.State(None), gr.State(ALL_HEADS)
        with gr.Row(elem_id="header"):
            gr.Markdown("# Attention Lab\nTrain a small model, let it answer, look into every head.")
            theme = gr.Button("Light / dark", size="sm", scale=0, min_width=110, elem_id="theme")
        bar = run_bar(partial(_runs_for_bar, runs))
        menu = run_menu(runs)
        address = gr.Textbox(visible="hidden", elem_id="address")
        with gr.Tabs(selected="decode", elem_id="tabs") as tabs:
            with gr.Tab("Train", id="train"):
                train_tab = train.build(runs, run)
            with gr.Tab("Decode", id="decode"):
                decode_tab = decode.build()
            with gr.Tab("Attention", id="attention"):
                edited = answer_comparison(elem_id="attention-edited")
                viewer = attention_viewer(runs)
                heads = attention.build(
                    runs, run, interventions, [decode_tab.edited, edited], ends=[run.change, bar.status]
                )
            with gr.Tab("Report", id="report"):
                report_tab = report.build(runs, run)
            with gr.Tab("Compare", id="compare"):
                run_picker = compare.build(runs)
            with gr.Tab("Lessons", id="lessons"):
                lessons.build(runs, run)
        with gr.Accordion("What is this?", open=False):
            gr.Markdown(_HELP)

        theme.click(None, None, None, js=script("switch_theme"), api_visibility="private")
        address.change(None, address, address, js=script("keep_address"), api_visibility="private")

        view = [run, decode_tab.text, interventions, *decode_tab.strategy.all]
        decoded = [seen, *decode_tab.results, interventions, *heads.of_decode, viewer, address]
        answer = partial(_answer, runs)
        chosen = [each.input for each in (decode_tab.strategy.kind, *decode_tab.strategy.controls)]
        asked = [decode_tab.button.click, decode_tab.text.submit, decode_tab.strategy.prefix.submit, *chosen]
        gr.on(asked, answer, view, decoded, concurrency_limit=4, trigger_mode="always_last", **QUIET)
        decode_tab.side_by_side.click(
            partial(decode.compare, runs),
            [run, interventions, decode_tab.text, decode_tab.strategy.prefix, *decode_tab.strategy.controls],
            [decode_tab.message, decode_tab.comparison],
            concurrency_limit=4,
            **QUIET,
        )
        decode_tab.examples.click(lambda sample: sample[0], decode_tab.examples, decode_tab.text, **QUIET).then(
            answer, view, decoded, **QUIET
        )
        for change in heads.changed:
            change.then(answer, view, decoded, concurrency_limit=4, **QUIET)
        run.change(
            show_errors(partial(_follow, runs)),
            [run, interventions],
            [bar, decode_tab.examples, menu, *train_tab.of_run, *report_tab.of_run, *heads.of_run],
            concurrency_limit=None,
            **QUIET,
        ).then(answer, view, decoded, concurrency_limit=4, **QUIET)
        bar.pick(_picked, None, run, **QUIET)
        menu.gone(partial(_run_to_open, runs), None, run, **QUIET)
        bar.status(
            partial(_shown_of_run, runs),
            [run, interventions],
            [menu, *train_tab.of_run, *report_tab.of_run, *heads.of_run],
            **QUIET,
        ).then(answer, view, decoded, **QUIET)
        look = [seen]
        decode_tab.answer.look(_look_at_step, look, [tabs, viewer], **QUIET)
        train_tab.model.look(_look_at_block, look, [tabs, viewer], **QUIET)
        decode_tab.glance.pick(_look_at_head, look, [tabs, viewer], **QUIET)

        def look_at_failure(run: str | None, event: gr.EventData) -> list[Any]:
            return _look_at_failure(runs, run, event)

        report_tab.gallery.look(
            look_at_failure,
            run,
            [tabs, decode_tab.text, *decode_tab.strategy.all, *decoded],
            concurrency_limit=4,
            **QUIET,
        )

        def open_page(request: gr.Request) -> list[Any]:  # Gradio hands a request only to what declares one
            return _open(runs, dict(request.query_params))

        opens = [run, tabs, decode_tab.text, interventions, *decode_tab.strategy.all, run_picker]
        opened = page.load(open_page, None, opens, **QUIET)
        train_tab.form.opens(opened.then, partial(train.first_draft, runs), [run])
        for each in ("keep_tab", "radio_keys"):
            page.load(None, None, None, js=script(each), api_visibility="private")
    return page


def _open(runs: VisitorRuns, asked: dict[str, str]) -> list[Any]:
    """Open the page where its address says, else where something happens, else at the shipped run."""
    run = _run_to_open(runs, asked.get("run"))
    live = run is not None and runs.info(run).status in ACTIVE
    strategy = strategy_form.from_query(asked)
    text = asked.get("input", "")[:MAX_INPUT] or (decode.examples_of(runs, run)[0][0] if run else "")
    return [
        run,
        gr.Tabs(selected=asked["tab"] if asked.get("tab") in TABS else "train" if live or run is None else "decode"),
        text,
        interventions.from_query(asked, run),
        strategy.kind,
        asked.get("prefix", "")[:MAX_INPUT],
        *strategy_form.controls_for(strategy),
        compare.ticks_of(runs, asked),
    ]


def _run_to_open(runs: VisitorRuns, asked: str | None = None) -> str | None:
    if asked and can_open(runs, asked):
        return asked
    names = runs.names()
    live = [name for name in names if runs.info(name).status in ACTIVE]
    shipped = [name for name in names if runs.info(name).shipped]
    return next(iter(live + shipped + names), None)


def _runs_for_bar(runs: VisitorRuns, _: Any = None) -> dict[str, Any]:
    return run_bar_value(runs)


def _picked(event: gr.EventData) -> str:
    return str(event.run)


def _follow(runs: VisitorRuns, run: str | None, asked: RequestedInterventions) -> list[Any]:
    """Show another run everywhere: in the bar, the examples, the Train, the Report and the Attention tab."""
    examples = gr.Dataset(samples=decode.examples_of(runs, run))
    return [{"current": run}, examples, *_shown_of_run(runs, run, asked)]


def _shown_of_run(runs: VisitorRuns, run: str | None, asked: RequestedInterventions) -> list[Any]:
    return [
        run_menu_value(runs, run),
        *train.run_shown(runs, run),
        *report.run_shown(runs, run),
        *attention.run_shown(runs, run, asked),
    ]


def _answer(
    runs: VisitorRuns, run: str | None, text: str, asked: RequestedInterventions = ALL_HEADS, *chosen: Any
) -> list[Any]:
    """Decode the current input with the current run, and show it in both tabs.

    Args:
        asked: what is done to heads; dropped if it is of another run or cannot be done.
        chosen: what the controls of the strategy hold: kind, prefix, settings.
    """
    with runs.inference_priority.inference():
        done, problem = attention.possible(runs, run, asked)
        seen, results = decode.decode(runs, run, text or "", *chosen, asked=done)
        kept = gr.skip() if done == asked else done
        shown = [*attention.decode_shown(seen, done, problem), *attention_of(seen, run=run)]
        return [seen, *results, kept, *shown, _address(run, text, done, *chosen)]


def _address(run: str | None, text: str, asked: RequestedInterventions, *chosen: Any) -> str:
    """Return the query that opens this decode again; the Attention tab adds what of it is looked at."""
    view = {"run": run, "input": text} | asked.of_run(run).as_query()
    if chosen:
        kind, prefix, *values = chosen
        view |= strategy_form.as_query(kind, prefix, values)
    return urlencode({name: value for name, value in view.items() if value})


def _look_at_step(seen: Seen | None, event: gr.EventData) -> list[Any]:
    return [gr.Tabs(selected="attention"), *_attention_at(seen, row=int(event.step))]


def _look_at_head(seen: Seen | None, event: gr.EventData) -> list[Any]:
    return [gr.Tabs(selected="attention"), *_attention_at(seen, head=int(event.head))]


def _look_at_block(seen: Seen | None, event: gr.EventData) -> list[Any]:
    return [gr.Tabs(selected="attention"), *attention_of(seen, str(event.block), int(event.layer))]


def _attention_at(seen: Seen | None, **place: int) -> list[Any]:
    """Open the last layer that looks at the input."""
    block = seen.source_block if seen else None
    return attention_of(seen, block, seen.layers(block) if seen else None, **place)


def _look_at_failure(runs: VisitorRuns, run: str | None, event: gr.EventData) -> list[Any]:
    """Decode a failure again, as it was found, with all heads; show the attention of the step that went wrong."""
    if event.run != run:
        raise gr.Error(
            "These failures are of another run than the current one; find them again.", print_exception=False
        )
    text = str(event.text)[:MAX_INPUT]
    seen, results = decode.decode(runs, run, text)
    last = len(seen.inspection.steps) - 1 if seen else 0  # weights in training may write less by now
    shown = _attention_at(seen, row=min(int(event.step), last))
    strategy = ["greedy", "", *strategy_form.controls_for(GREEDY)]
    decoded = [seen, *results, ALL_HEADS, *attention.decode_shown(seen, ALL_HEADS), *shown]
    return [gr.Tabs(selected="attention"), text, *strategy, *decoded, _address(run, text, ALL_HEADS)]
