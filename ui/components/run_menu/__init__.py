"""The run menu: download, share or delete the current run."""

from functools import partial
from typing import Any

import gradio as gr

from core.runs import ACTIVE
from core.server.access import VisitorRuns, display_name
from ui.components.component import RunRequest, component, validated
from ui.serving.downloads import PATH

NO_RUN_SELECTED: dict[str, Any] = {"run": None}


class ShareRequest(RunRequest):
    """A request to share a run or to stop sharing it."""

    shared: bool


def run_menu(runs: VisitorRuns, *, elem_id: str = "run-menu") -> gr.HTML:
    """Build the component. Value: ``run_menu_value``. Event: ``.gone(fn)`` after the run was deleted."""
    functions = {
        "share": validated(ShareRequest, partial(share, runs)),
        "delete": validated(RunRequest, partial(delete, runs)),
    }
    return component("run_menu", elem_id=elem_id, server_functions=functions)


def run_menu_value(runs: VisitorRuns, run: str | None) -> dict[str, Any]:
    """Return the actions that are available for a run, as the component's value."""
    if run is None:
        return NO_RUN_SELECTED
    mine, info = runs.is_mine(run) and not runs.info(run).shipped, runs.info(run)
    has_file = runs.has_weights(run) and info.status not in ACTIVE
    has_own_data = bool(runs.preset(run).task.own_data)
    return {
        "run": run,
        "label": display_name(run),
        "file": f"{PATH}/{run}" if has_file and not has_own_data else None,
        "package": f"{PATH}/{run}.zip" if has_file and (mine or not has_own_data) else None,
        "shared": runs.is_shared(run) if mine and runs.has_visitors else None,
        "deletable": mine and info.status not in ACTIVE,
    }


def share(runs: VisitorRuns, request: ShareRequest) -> dict[str, Any]:
    """Share a run or stop sharing it; return the new value."""
    runs.share(request.run, request.shared)
    return run_menu_value(runs, request.run)


def delete(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Delete a run; return the new value."""
    runs.delete(request.run)
    return NO_RUN_SELECTED
