"""The run picker: runs by task, with checkboxes to select those to compare."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import gradio as gr

from core.config import Preset
from core.config.listing import describe_changes, listed_presets, missing_package, shipped_preset
from core.reports.comparison import group_runs, held_out_key
from core.runs import Run
from core.server.access import VisitorRuns
from ui.components.component import Request, component, validated
from ui.run_info import MAX_LISTED_RUNS

MAX_RIVALS = 3  # presets that are suggested where a task has one run


def run_picker(runs: VisitorRuns) -> gr.HTML:
    """Build the component. Value: ``{"chosen": [id]}``, which the visitor's choice changes.

    Event: ``.begin(fn)``, when a value with ``"start": True`` arrives.
    """
    functions = {"list_runs": validated(Request, partial(runs_by_task, runs))}
    return component(
        "run_picker", elem_id="run-picker", events=["begin"], value={"chosen": []}, server_functions=functions
    )


def runs_by_task(runs: VisitorRuns, _: Request | None = None) -> dict[str, Any]:
    """Return the runs grouped by task, and within a task by all settings except the seed.

    A task with a single run comes with the quickest presets that would give it another one.
    """
    by_task: dict[tuple, list[Run]] = {}
    for name in runs.readable_names(MAX_LISTED_RUNS):
        run = runs[name]
        if run.preset.is_watched:  # there is nothing here to decode and compare
            continue
        by_task.setdefault(held_out_key(run.preset.task), []).append(run)
    return {
        "tasks": [
            _task({run.name: run for run in each}) | {"rivals": _rivals(key, each[0].preset) if len(each) == 1 else []}
            for key, each in by_task.items()
        ]
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


@lru_cache(MAX_LISTED_RUNS * 10)
def _about(preset: Preset) -> str:
    """Return a run's preset and its changed settings, the seed excepted."""
    base = shipped_preset(preset)
    training = preset.training.model_copy(update={"seed": base.training.seed})
    changes = describe_changes(preset.model_copy(update={"training": training}), base)
    return f"preset {preset.name}" + (f", {changes}" if changes else "")
