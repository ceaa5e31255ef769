"""The training charts: progress, loss and accuracy of one run while it trains."""

from functools import partial
from typing import Any

import gradio as gr
from pydantic import Field

from core.server.access import VisitorRuns
from ui.components.component import RunRequest, component, validated
from ui.run_info import progress_since


class ProgressRequest(RunRequest):
    """A request for metrics after the steps that the browser already has."""

    since_step: int = Field(default=-1, ge=-1)
    since_evaluation: int = Field(default=-1, ge=-1)


def training_charts(runs: VisitorRuns, *, elem_id: str = "charts") -> gr.HTML:
    """Build the component. Value: ``{"run": id or None}``, optionally with ``"status"`` to refresh immediately."""
    return component(
        "training_charts",
        elem_id=elem_id,
        value={"run": None},
        server_functions={"progress": validated(ProgressRequest, partial(progress, runs))},
        scripts=["history.js", "plot.js", "chart_pointer.js"],
    )


def progress(runs: VisitorRuns, request: ProgressRequest) -> dict[str, Any]:
    """Return the state of a run with its new metrics."""
    return progress_since(runs, request.run, since_step=request.since_step, since_evaluation=request.since_evaluation)
