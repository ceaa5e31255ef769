"""The bench: loss, accuracy, answers and attention heads of the current run, moving together while it trains."""

from functools import partial
from typing import Any

import gradio as gr
from pydantic import Field

from core.interpret.health_course import health_series, health_steps
from core.server.access import VisitorRuns
from ui.components.component import RunRequest, component, validated
from ui.json_numbers import json_number

DIGITS = 4  # significant ones, more than a chart shows
MAX_HEADS = 64  # with a line each in the charts of health; of a larger model each attention layer has one


class HealthRequest(RunRequest):
    """A request for the health of a run at the steps after one that the browser has."""

    since: int = Field(default=-1, ge=-1)


def bench(runs: VisitorRuns, *, elem_id: str = "bench-view") -> gr.HTML:
    """Build the component. It has no value: it shows what the run bar receives, see ``ui/web/run_feed.js``."""
    functions = {"health": validated(HealthRequest, partial(health, runs))}
    return component("bench", elem_id=elem_id, server_functions=functions)


def health(runs: VisitorRuns, request: HealthRequest) -> dict[str, Any]:
    """Return the figures of the health of a run after a step, and the steps that are saved.

    A run has at most ``MAX_SNAPSHOTS`` steps; a long one drops every second of them now and then.

    Returns:
        {"run", "steps": all saved, "added": those after the request's step, "series": {measure: {name: values at the
        added steps}}, "by_layer": whether figures of heads are means over attention layers}.
    """
    course = health_steps(runs[request.run].replay.snapshots())
    added = [(step, each) for step, each in course if step > request.since]
    series = health_series((each for _, each in added), max_heads=MAX_HEADS)
    names = list(series["entropy"])
    return {
        "run": request.run,
        "steps": [step for step, _ in course],
        "added": [step for step, _ in added],
        "series": {
            measure: {name: [json_number(value, DIGITS) for value in values] for name, values in of.items()}
            for measure, of in series.items()
        },
        "by_layer": bool(names) and names[0].count(".") == 1,
    }
