"""The run picker: runs by task, with checkboxes to select those to compare."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import gradio as gr
from pydantic import Field

from core.config import Preset
from core.config.listing import describe_changes, listed_presets, missing_package, shipped_preset
from core.reports.comparison import group_runs, held_out_key
from core.runs import Run
from core.server.access import VisitorRuns
from core.server.run_list import MAX_LISTED
from ui.components.component import SearchRequest, component, validated

MAX_RIVALS = 3  # presets that are suggested where a task has one run


class PickerRequest(SearchRequest):
    """A request for the runs to compare. ``keep``: names of runs to list anyway, such as the chosen ones."""

    keep: list[str] = Field(default=[], max_length=MAX_LISTED)


def run_picker(runs: VisitorRuns) -> gr.HTML:
    """Build the component. Value: ``{"chosen": [id]}``, which the visitor's choice changes.

    Event: ``.begin(fn)``, when a value with ``"start": True`` arrives.
    """
    functions = {"runs_by_task": validated(PickerRequest, partial(runs_by_task, runs))}
    return component(
        "run_picker", elem_id="run-picker", events=["begin"], value={"chosen": []}, server_functions=functions
    )


def runs_by_task(runs: VisitorRuns, request: PickerRequest | None = None) -> dict[str, Any]:
    """Return the runs that match a search, by task, and within a task by all settings except the seed.

    A task with a single run comes with the quickest presets that would give it another one.
    """
    request = request or PickerRequest()
    found, by_task = runs.find(request.search, keep=request.keep), dict[tuple, list[Run]]()
    for row in found.rows:
        if not row.preset.is_watched:  # there is nothing here to decode and compare
            by_task.setdefault(held_out_key(row.preset.task), []).append(runs[row.name])
    return {
        "tasks": [
            _task({run.name: run for run in each}) | {"rivals": _rivals(key, each[0].preset) if len(each) == 1 else []}
            for key, each in by_task.items()
        ],
        "unlisted": found.unlisted,
        "unsearched": found.unsearched,
    }


def _rivals(task: tuple, preset: Preset) -> list[str]:
    """Return names of other presets of a task, by its ``held_out_key``, the quickest to train first."""
    others = (each for each in listed_presets() if each.name != preset.name and missing_package(each) is None)
    return [each.name for each in others if held_out_key(each.task) == task][:MAX_RIVALS]


def _task(runs: Mapping[str, Run]) -> dict[str, Any]:
    presets = {name: run.preset for name, run in runs.items()}
    first = next(iter(presets.values()))
    groups = [
        {
            "label": group.label,
            "about": _about(presets[group.runs[0]]),
            "runs": [_listed(runs[name]) for _, name in sorted(zip(group.seeds, group.runs, strict=True))],
        }
        for group in group_runs(presets, titles={name: run.title for name, run in runs.items()})
    ]
    return {"task": first.task.summary, "groups": groups}


def _listed(run: Run) -> dict[str, Any]:
    info = run.info
    return {
        "id": run.name,
        "title": run.title,
        "seed": run.preset.training.seed,
        "status": info.status,
        "step": info.step,
        "headline": [figure.model_dump() for figure in info.figures],
        "ready": run.has_weights,
    }


@lru_cache(MAX_LISTED * 10)
def _about(preset: Preset) -> str:
    """Return a run's preset and its changed settings, the seed excepted."""
    base = shipped_preset(preset)
    training = preset.training.model_copy(update={"seed": base.training.seed})
    changes = describe_changes(preset.model_copy(update={"training": training}), base)
    return f"preset {preset.name}" + (f", {changes}" if changes else "")
