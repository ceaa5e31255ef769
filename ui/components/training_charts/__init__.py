"""The Train tab: pick a preset, change what you like, train, and watch."""

from functools import partial
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.server.access import VisitorRuns
from core.storage.errors import LabError
from ui.components.component import component
from ui.run_info import progress_since


def training_charts(runs: VisitorRuns, *, elem_id: str = "charts") -> gr.HTML:
    """Progress, loss and accuracy of one run while it trains. Value: ``{"run": id or None}``, optionally ``"status"``."""
    scripts = ["history.js", "plot.js", "chart_pointer.js"]
    functions = {"progress": partial(progress, runs)}
    return component(
        "training_charts", elem_id=elem_id, value={"run": None}, server_functions=functions, scripts=scripts
    )


class ProgressRequest(BaseModel):
    """What the charts ask for; anybody may, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)
    since_step: int = Field(default=-1, ge=-1)
    since_evaluation: int = Field(default=-1, ge=-1)


def progress(runs: VisitorRuns, request: dict[str, Any]) -> dict[str, Any]:
    """Answer the charts: where a run stands, and its figures after the steps they already have."""
    try:
        asked = ProgressRequest.model_validate(request)
        return progress_since(runs, asked.run, since_step=asked.since_step, since_evaluation=asked.since_evaluation)
    except ValidationError as error:
        return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}
    except LabError as error:
        return {"error": str(error)}
