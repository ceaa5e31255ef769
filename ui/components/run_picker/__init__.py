"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

from functools import lru_cache, partial
from typing import Any

import gradio as gr

from core.config import Preset
from core.reports.comparison import group_runs, held_out_key
from core.server import Runs
from ui.components.component import component
from ui.run_info import LISTED_RUNS, base_of, changes_in_words


def run_picker(runs: Runs, *, elem_id: str = "run-picker") -> gr.HTML:
    """Runs by task, with checkboxes to select those to compare. Value: ``{"chosen": [id]}``.

    Event: ``.begin(fn)``, when a value with ``"at_once": True`` arrives.
    """
    functions = {"list_runs": partial(runs_by_task, runs)}
    return component("run_picker", elem_id=elem_id, value={"chosen": []}, server_functions=functions)


def runs_by_task(runs: Runs, _: Any = None) -> dict[str, Any]:
    """Return the runs for the picker: by task, and there by all settings but the seed."""
    by_task: dict[tuple, dict[str, Preset]] = {}
    for name in runs.names()[:LISTED_RUNS]:
        preset = runs.preset(name)
        by_task.setdefault(held_out_key(preset.task), {})[name] = preset
    return {"tasks": [_task(runs, presets) for presets in by_task.values()]}


def _task(runs: Runs, presets: dict[str, Preset]) -> dict[str, Any]:
    first = next(iter(presets.values()))
    groups = [
        {
            "label": group.label,
            "about": _about(presets[group.runs[0]]),
            "runs": [
                _listed(runs, name, presets[name]) for _, name in sorted(zip(group.seeds, group.runs, strict=True))
            ],
        }
        for group in group_runs(presets)
    ]
    return {"task": first.task.summary, "groups": groups}


def _listed(runs: Runs, name: str, preset: Preset) -> dict[str, Any]:
    info = runs.info(name)
    return {
        "id": name,
        "seed": preset.training.seed,
        "status": info.status,
        "step": info.step,
        "exact_match": info.exact_match,
        "ready": runs.has_weights(name),
    }


@lru_cache(LISTED_RUNS * 10)
def _about(preset: Preset) -> str:
    """Name a run's preset, and what was changed in it, the seed aside."""
    base = base_of(preset)
    training = preset.training.model_copy(update={"seed": base.training.seed})
    changes = changes_in_words(preset.model_copy(update={"training": training}), base)
    return f"preset {preset.name}" + (f", {changes}" if changes else "")
