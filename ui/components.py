"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from core.storage.errors import LabError
from ui.guarded_page import fault_in_words

ASSETS = Path(__file__).parent / "assets"
PAGE_CSS = ASSETS / "page.css"
"""Give this to `launch(css_paths=PAGE_CSS)`."""

_log = logging.getLogger(__name__)
ServerFunction = Callable[[dict[str, Any]], dict[str, Any]]
"""Called by the browser with one JSON object; answers with one. Check what it is given: anybody can call it."""


def run_bar(list_runs: ServerFunction, *, value: dict[str, Any] | None = None, elem_id: str = "run-bar") -> gr.HTML:
    """All runs as chips, one of them current. Value: `{"current": id}`, optionally with `"status"`.

    Events: `.pick(fn)` with `evt.run`; `.status(fn)` with `evt.run, evt.status` when the current
    run's status changes.
    """
    return _component("run_bar", ["run_bar.js"], {"list_runs": list_runs}, value, elem_id)


def run_menu(share: ServerFunction, delete: ServerFunction, *, elem_id: str = "run-menu") -> gr.HTML:
    """What can be done with a run as a whole. Value: see `ui/run_menu.py`. Event: `.gone(fn)` when it was deleted."""
    return _component("run_menu", ["run_menu.js"], {"share": share, "delete": delete}, None, elem_id)


def charts(progress: ServerFunction, *, value: dict[str, Any] | None = None, elem_id: str = "charts") -> gr.HTML:
    """Progress, loss and accuracy of one run while it trains. Value: `{"run": id}` or `{"run": None}`."""
    scripts = ["history.js", "plot.js", "chart_pointer.js", "charts.js"]
    return _component("charts", scripts, {"progress": progress}, value, elem_id)


def attention_viewer(picture: ServerFunction, replay: ServerFunction, *, elem_id: str = "viewer") -> gr.HTML:
    """Every head of a decode or, step by step, of the training: all as thumbnails, one large.

    Value: `{"run": id, "decode": {…} or None, "open": {…}}`, see `ui/maps.py`. `picture` draws one head for download:
    `{"png": base64}` or `{"error": text}`. `replay` returns what is new of a run. What is looked at is kept in the
    page's address and read from there when the page opens.
    """
    scripts = ["attention_map.js", "thumbnails.js", "maps.js", "history.js", "plot.js", "view_state.js", "choice.js"]
    scripts += ["heads_grid.js", "large_map.js", "writing.js", "replay_charts.js", "replay.js", "viewer.js"]
    functions = {"picture": picture, "replay": replay}
    return _component("viewer", scripts, functions, None, elem_id, styles=["thumbnails.css"])


def glance(*, elem_id: str = "mini-viewer") -> gr.HTML:
    """The heads of one layer as thumbnails, to click. Event: `.pick(fn)` with `evt.head`, counted from 1."""
    scripts = ["attention_map.js", "thumbnails.js", "glance.js"]
    return _component("glance", scripts, {}, None, elem_id, styles=["thumbnails.css"])


def report_view(saved: ServerFunction, bundle: ServerFunction, *, elem_id: str = "report") -> gr.HTML:
    """A run's saved report, to read and to take away. Value: `{"run": id, "written": time}`; a new time fetches anew.

    `saved` returns `{"html": text}`, `bundle` `{"zip": base64}`, either `{"error": text}`.
    """
    return _component("report", ["report.js"], {"saved": saved, "bundle": bundle}, None, elem_id)


def run_picker(list_runs: ServerFunction, *, elem_id: str = "run-picker") -> gr.HTML:
    """Runs by task, to tick those to be compared. Value: `{"chosen": [id]}`, which the visitor's ticks change.

    Event: `.begin(fn)`, when a value with `"at_once": True` arrives.
    """
    return _component("run_picker", ["run_picker.js"], {"list_runs": list_runs}, {"chosen": []}, elem_id)


def run_comparison(*, elem_id: str = "run-comparison") -> gr.HTML:
    """Runs side by side. Value: `comparison.as_data`, or `{"progress": {"done": share, "run": id}}` until then."""
    scripts = ["history.js", "plot.js", "series_chart.js", "run_comparison.js"]
    return _component("run_comparison", scripts, {}, None, elem_id, styles=["series_chart.css"])


def lesson_view(lesson: ServerFunction, *, value: dict[str, Any], elem_id: str = "lesson") -> gr.HTML:
    """Lessons to pick from, and the one picked. Value: `{"lessons": [{"name", "title"}]}`.

    `lesson` returns one, see `ui/lessons_tab.py`. Event: `.train(fn)` with `evt.lesson`.
    """
    scripts = ["history.js", "plot.js", "series_chart.js", "attention_map.js", "lights.js", "lesson.js"]
    return _component("lesson", scripts, {"lesson": lesson}, value, elem_id, styles=["series_chart.css", "lights.css"])


def model_diagram(*, elem_id: str = "model") -> gr.HTML:
    """A model's parts with their sizes, each attention a link. Value: `ui/model_panel.py`.

    Event: `.look(fn)` with `evt.block, evt.layer`.
    """
    return _component("model_diagram", ["model_diagram.js"], {}, None, elem_id)


def doctor(examine: ServerFunction, *, elem_id: str = "doctor") -> gr.HTML:
    """What is wrong with a run, in lights and sentences, asked for whenever it can be seen. Value: `{"run": id}`."""
    return _component("doctor", ["lights.js", "doctor.js"], {"examine": examine}, None, elem_id, styles=["lights.css"])


def failure_gallery(*, elem_id: str = "failures") -> gr.HTML:
    """What a run got wrong, in groups. Value: `report.gallery_as_data` with run, summary and advice, or progress.

    Event: `.look(fn)` with `evt.run, evt.text, evt.step`: an input, and the step, counted from 0, that went wrong.
    """
    return _component("failure_gallery", ["failure_gallery.js"], {}, None, elem_id)


def answer(*, value: dict[str, Any] | None = None, elem_id: str = "answer") -> gr.HTML:
    """What the model wrote, right or wrong, and how sure it was at each step.

    Event: `.look(fn)` with `evt.step`, counted from 0.
    """
    return _component("answer", ["answer.js"], {}, value, elem_id)


def beam_tree(*, value: dict[str, Any] | None = None, elem_id: str = "beam-tree") -> gr.HTML:
    """Everything that a beam search held, as a tree; hidden without a value."""
    return _component("beam_tree", ["beam_tree.js"], {}, value, elem_id)


def comparison(*, value: dict[str, Any] | None = None, elem_id: str = "comparison") -> gr.HTML:
    """Answers to one input in several ways, the first difference from the first of them marked; hidden without.

    Event: `.press(fn)` when the button is pressed that the value may name.
    """
    return _component("comparison", ["comparison.js"], {}, value, elem_id)


def heads(*, value: dict[str, Any] | None = None, elem_id: str = "heads") -> gr.HTML:
    """What a model gets right without each head, as a grid of buttons; see `ui/heads_panel.py` for the value.

    Set apart from the value: `interventions`, what is done to heads now, and `measuring`, whether cells are still to come.
    Event: `.toggle(fn)` with `evt.name`, such as `cross.2.1` or `cross.2`.
    """
    return _component(
        "heads", ["heads.js"], {}, value, elem_id, interventions={"out": [], "forced": {}}, measuring=False
    )


def data_preview(*, elem_id: str = "own-preview") -> gr.HTML:
    """What was found in pairs that somebody brought. Value: `data_panel.preview_of`, or `{"problem": sentence}`."""
    return _component("data_preview", ["data_preview.js"], {}, None, elem_id)


def notice(*, value: dict[str, Any] | None = None, elem_id: str) -> gr.HTML:
    """One sentence of text. Value: `{"text": sentence}`, with `"problem": True` for what went wrong."""
    return _component("notice", ["notice.js"], {}, value, elem_id)


def _component(
    name: str,
    scripts: list[str],
    functions: dict[str, ServerFunction],
    value: dict[str, Any] | None,
    elem_id: str,
    styles: list[str] | None = None,
    **props: Any,
) -> gr.HTML:
    """Put `name.html`, `name.css`, the scripts and the styles of shared parts together into one component."""
    colours = f"const COLOURS = {_read('colours.json').strip()};\n"
    return gr.HTML(
        value,
        html_template=_read(f"{name}.html"),
        css_template="".join(map(_read, ["shared.css", *(styles or []), f"{name}.css"])),
        js_on_load=colours + "\n".join(_read(script) for script in ["shared.js", *scripts]),
        server_functions=[_named(function, called) for called, function in functions.items()],
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes="lab-component",
        **props,
    )


def _named(function: ServerFunction, name: str) -> ServerFunction:
    """The same function under the name by which the script calls it; where it fails, it says so in its answer."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return function(*args, **kwargs)
        except LabError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - anybody may call it, with anything
            _log.exception("server function failed", extra={"function": name})
            return {"error": fault_in_words(error)}

    call.__name__ = name
    return call


def _read(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
