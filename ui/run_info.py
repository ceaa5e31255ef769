"""What the page's components are given: plain data made from runs, decodes and maps."""

from typing import Any

from core.config import ConfigError, Preset, load_preset
from core.runs import RunError
from core.server import RunProgress, Runs
from core.server.access import display_name
from core.teaching.bugs.descriptions import bug_notice

LISTED_RUNS = 50


def run_list(runs: Runs) -> dict[str, Any]:
    """Return the runs for the bar at the top of the page."""
    listed = []
    for name in runs.names()[:LISTED_RUNS]:
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
                "place": progress.queue_position,
            }
        )
    return {"runs": listed}


def can_open(runs: Runs, name: str) -> bool:
    """Tell whether there is a run to be opened of a name that somebody's link gives."""
    try:
        runs.info(name)
        runs.preset(name)
    except RunError:
        return False
    return True


def progress_since(runs: Runs, name: str, *, since_step: int, since_evaluation: int) -> dict[str, Any]:
    """Return where a run stands and its figures after the steps a chart already has."""
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
        "restart": progress.info.step < since_step,  # it was rewound to its last saved state
    }


def settings_line(runs: Runs, name: str) -> str:
    """Describe a run's settings: its preset and what was changed in it."""
    preset = runs.preset(name)
    changes = changes_in_words(preset, base_of(preset))
    line = f"{display_name(name)}: preset {preset.name}, {changes or 'unchanged'}; seed {preset.training.seed}"
    return f"{line}. {bug_notice(preset)}" if preset.bug else line


def base_of(preset: Preset) -> Preset:
    """Return the shipped preset that one was made from, or itself where there is none of its name."""
    try:
        return load_preset(preset.name)
    except ConfigError:
        return preset


def changes_in_words(preset: Preset, base: Preset) -> str:
    """List what a preset changes, as ``training.steps 1000 → 500, …``; without the old value where there is none."""
    changes = preset.changed_from(base).items()
    return ", ".join(f"{key} {new}" if old is None else f"{key} {old} → {new}" for key, (old, new) in changes)


def _message(progress: RunProgress) -> str:
    if progress.queue_position is not None:
        return f"waiting for a free place: number {progress.queue_position} in the queue"
    return progress.info.message
