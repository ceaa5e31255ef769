"""Summaries of runs that several tabs show: the list of runs, training progress and changed settings."""

from typing import Any

from core.config import ConfigError, Preset, load_preset
from core.runs import RunError
from core.server import RunProgress
from core.server.access import VisitorRuns, display_name
from core.teaching.bugs.descriptions import bug_notice

MAX_LISTED_RUNS = 50


def list_runs(runs: VisitorRuns) -> dict[str, Any]:
    """Return name, preset, status, step and exact match of the runs, the latest first."""
    listed = []
    for name in runs.names()[:MAX_LISTED_RUNS]:
        progress = runs.progress(name)
        listed.append(
            {
                "id": name,
                "preset": runs.preset(name).name,
                "status": progress.info.status,
                "shipped": progress.info.shipped,
                "step": progress.info.step,
                "steps": progress.steps,
                "exact_match": progress.info.exact_match,
                "queue_position": progress.queue_position,
            }
        )
    return {"runs": listed}


def can_open(runs: VisitorRuns, name: str) -> bool:
    """Return whether a run of this name, which may come from a link, exists and is visible to the visitor."""
    try:
        runs.info(name)
        runs.preset(name)
    except RunError:
        return False
    return True


def progress_since(runs: VisitorRuns, name: str, *, since_step: int, since_evaluation: int) -> dict[str, Any]:
    """Return the state of a run, and its training and evaluation metrics after the given steps."""
    progress, history = runs.progress(name), runs.history(name)
    evaluations = history.evaluations(since=since_evaluation)
    evaluations["loss"] = evaluations.pop("validation_loss")
    return {
        "run": name,
        "status": progress.info.status,
        "message": _message(progress),
        "step": progress.info.step,
        "steps": progress.steps,
        "steps_per_second": progress.steps_per_second,
        "seconds_left": progress.seconds_left,
        "best_step": progress.info.best_step,
        "points": history.points(since=since_step),
        "evaluations": evaluations,
        "restart": progress.info.step < since_step,  # the run resumed from an earlier checkpoint
    }


def settings_line(runs: VisitorRuns, name: str) -> str:
    """Return a run's preset, changed settings and seed as one line."""
    preset = runs.preset(name)
    changes = describe_changes(preset, shipped_preset(preset))
    line = f"{display_name(name)}: preset {preset.name}, {changes or 'unchanged'}; seed {preset.training.seed}"
    return f"{line}. {bug_notice(preset)}" if preset.bug else line


def shipped_preset(preset: Preset) -> Preset:
    """Return the shipped preset of the same name, or the preset itself if there is none."""
    try:
        return load_preset(preset.name)
    except ConfigError:
        return preset


def describe_changes(preset: Preset, base: Preset) -> str:
    """List changed settings as ``training.steps 1000 → 500, …``; without the old value where there is none."""
    changes = preset.changed_from(base).items()
    return ", ".join(f"{key} {new}" if old is None else f"{key} {old} → {new}" for key, (old, new) in changes)


def _message(progress: RunProgress) -> str:
    if progress.queue_position is not None:
        return f"waiting for a free training slot: position {progress.queue_position} in the queue"
    return progress.info.message
