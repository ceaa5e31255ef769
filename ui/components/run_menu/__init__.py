"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from functools import partial
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.runs import ACTIVE
from core.server.access import VisitorRuns, display_name
from ui.components.component import ServerFunction, component
from ui.serving.downloads import PATH


def run_menu(runs: VisitorRuns, *, elem_id: str = "run-menu") -> gr.HTML:
    """Actions on the current run: download, share, delete. Value: ``run_menu_value``.

    Event: ``.gone(fn)`` after the run was deleted.
    """
    functions = {"share": _validated(partial(share, runs)), "delete": _validated(partial(delete, runs))}
    return component("run_menu", elem_id=elem_id, server_functions=functions)


NOTHING: dict[str, Any] = {"run": None}


class MenuRequest(BaseModel):
    """What a browser asks to be done with a run; anybody may ask, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)
    shared: bool = False


def run_menu_value(runs: VisitorRuns, run: str | None) -> dict[str, Any]:
    """Return what can be done with a run."""
    if run is None:
        return NOTHING
    mine, info = runs.is_mine(run) and not runs.info(run).shipped, runs.info(run)
    has_file = runs.has_weights(run) and info.status not in ACTIVE
    is_own = bool(runs.preset(run).task.own_data)
    return {
        "run": run,
        "label": display_name(run),
        "file": f"{PATH}/{run}" if has_file and not is_own else None,
        "package": f"{PATH}/{run}.zip" if has_file and (mine or not is_own) else None,
        "shared": runs.is_shared(run) if mine and runs.has_visitors else None,
        "deletable": mine and info.status not in ACTIVE,
    }


def share(runs: VisitorRuns, request: MenuRequest) -> dict[str, Any]:
    """Let others look at a run, or no more; return what can be done with it then."""
    runs.share(request.run, request.shared)
    return run_menu_value(runs, request.run)


def delete(runs: VisitorRuns, request: MenuRequest) -> dict[str, Any]:
    """Delete a run."""
    runs.delete(request.run)
    return NOTHING


def _validated(function: Any) -> ServerFunction:
    def call(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return function(MenuRequest.model_validate(request))
        except ValidationError as error:
            return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}

    return call
