"""Summaries of runs that several tabs show: the list of runs, training progress and settings."""

from typing import Any

from core.config.listing import changes_from_shipped
from core.runs import Run, RunError, RunProgress
from core.server.access import VisitorRuns
from core.teaching.bugs.descriptions import bug_notice

STOPPABLE = ("queued", "training")
RESUMABLE = ("stopped", "failed", "interrupted")


def list_runs(runs: VisitorRuns, search: str = "", task: str = "") -> dict[str, Any]:
    """Return name, title, preset, task, status and figures of the runs that match; see ``find_runs``."""
    found = runs.find(search, task=task)
    listed: list[dict[str, Any]] = []
    for row in found.rows:
        info, preset = row.progress.info, row.preset
        listed.append(
            {
                "id": row.name,
                "title": row.title,
                "preset": preset.name,
                "task": preset.task.summary,
                "created": info.created.isoformat(),
                "shared": runs.has_visitors and row.shared,
                "status": info.status,
                "shipped": info.shipped,
                "start_from": info.start.run if info.start else "",
                "step": info.step,
                "steps": row.progress.steps,
                "headline": [figure.model_dump() for figure in info.figures],
                "queue_position": row.progress.queue_position,
            }
        )
    return {"runs": listed, "unlisted": found.unlisted, "unsearched": found.unsearched}


def can_open(runs: VisitorRuns, name: str) -> bool:
    """Return whether a run of this name, which may come from a link, exists and is visible to the visitor."""
    try:
        run = runs[name]
        _ = run.info, run.preset
    except RunError:
        return False
    return True


def progress_since(
    run: Run,
    *,
    since_step: int,
    since_evaluation: int,
    step_width: int = 0,
    evaluation_width: int = 0,
) -> dict[str, Any]:
    """Return the state of a run, and what its charts need after the rows that they have; see ``History.chart``."""
    state, history = progress_of(run), run.history
    points = history.chart("points", since=since_step, width=step_width)
    evaluations = history.chart("evaluations", since=since_evaluation, width=evaluation_width)
    _rename_loss(evaluations["columns"])
    return state | {"points": points, "evaluations": evaluations}


def recorded_since(run: Run, step: int) -> dict[str, Any]:
    """Return the state of a run, and its recorded training and evaluation metrics after a step."""
    state, history = progress_of(run), run.history
    evaluations = history.evaluations(since=step)
    _rename_loss(evaluations)
    restart = state["step"] < step  # the run resumed from an earlier checkpoint
    return state | {"points": history.points(since=step), "evaluations": evaluations, "restart": restart}


def progress_of(run: Run) -> dict[str, Any]:
    """Return the state of a run without its metrics."""
    progress = run.progress
    return {
        "run": run.name,
        "title": run.title,
        "status": progress.info.status,
        "message": _message(progress),
        "step": progress.info.step,
        "steps": progress.steps,
        "steps_per_second": progress.steps_per_second,
        "seconds_left": progress.seconds_left,
        "best_step": progress.info.best_step,
        "headline": [figure.model_dump() for figure in progress.info.figures],
        "queue_position": progress.queue_position,
        "seconds_to_start": progress.seconds_to_start,
    }


def settings_line(run: Run) -> str:
    """Return a run's preset, changed settings and seed as one line."""
    preset = run.preset
    if preset.is_watched:
        return f"{run.title}: {preset.task.summary}; {run.info.parameters:,} parameters"
    changes = changes_from_shipped(preset)
    changed = "" if changes is None else f", {changes or 'unchanged'}"
    line = f"{run.title}: preset {preset.name}{changed}; seed {preset.training.seed}"
    if start := run.info.start:
        line += f"; began with the weights of {start.text}"
    return f"{line}. {bug_notice(preset)}" if preset.bug else line


def _rename_loss(evaluations: dict[str, list]) -> None:
    """Give the validation loss the name that it has on the page."""
    evaluations["loss"] = evaluations.pop("validation_loss")


def _message(progress: RunProgress) -> str:
    if progress.queue_position is not None:
        return f"waiting for a free training slot: position {progress.queue_position} in the queue"
    return progress.info.message
