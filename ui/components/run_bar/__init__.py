"""The run bar: all runs as chips, one of them current."""

from collections import Counter
from functools import partial
from typing import Any

import gradio as gr

from core.server.access import VisitorRuns, display_name
from ui.components.component import Request, component, validated
from ui.run_info import list_runs


def run_bar(runs: VisitorRuns, *, elem_id: str = "run-bar") -> gr.HTML:
    """Build the component. Value: ``{"current": id}``, optionally with ``"status"``.

    Events: ``.pick(fn)`` with ``evt.run``; ``.status(fn)`` with ``evt.run, evt.status`` when the status of the
    current run changes.
    """
    functions = {"list_runs": validated(Request, partial(labeled_runs, runs))}
    return component("run_bar", elem_id=elem_id, server_functions=functions)


def labeled_runs(runs: VisitorRuns, _: Request | None = None) -> dict[str, Any]:
    """Return the runs with short unique labels and whether they are shared."""
    listed = list_runs(runs)["runs"]
    count = Counter(display_name(each["id"]) for each in listed)
    for each in listed:
        short = display_name(each["id"])
        each["label"] = short if count[short] == 1 else each["id"][: len(short) + 5]
        each["shared"] = runs.has_visitors and runs.is_shared(each["id"])
    return {"runs": listed}
