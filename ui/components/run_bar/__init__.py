"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from collections import Counter
from typing import Any

import gradio as gr

from core.server.access import VisitorRuns, display_name
from ui.components.component import ServerFunction, component
from ui.run_info import run_list


def run_bar(list_runs: ServerFunction, *, value: dict[str, Any] | None = None, elem_id: str = "run-bar") -> gr.HTML:
    """All runs as chips, one of them current. Value: ``{"current": id}``, optionally with ``"status"``.

    Events: ``.pick(fn)`` with ``evt.run``; ``.status(fn)`` with ``evt.run, evt.status`` when the current
    run's status changes.
    """
    return component("run_bar", elem_id=elem_id, value=value, server_functions={"list_runs": list_runs})


def run_bar_value(runs: VisitorRuns) -> dict[str, Any]:
    """Return the runs for the bar, with short names and whether they are shared."""
    told = run_list(runs)["runs"]
    count = Counter(display_name(each["id"]) for each in told)
    for each in told:
        short = display_name(each["id"])
        each["label"] = short if count[short] == 1 else each["id"][: len(short) + 5]
        each["shared"] = runs.has_visitors and runs.is_shared(each["id"])
    return {"runs": told}
