"""Train one run of a sweep: a function of preset and folder that reports, can be stopped, and can be resumed.

It knows no search and no process, so that other programs than ``core.runs.sweeps.worker`` can call it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from core.config import Preset
from core.runs import RunError, RunFolder, RunInfo
from core.runs.recorder import train_recorded
from core.runs.training_state import resume_state
from core.training.history import History
from core.training.loop import EvaluationEvent, Event

Report = Callable[[int, dict[str, float | None]], None]
"""Is told the number of an evaluation, from 1 for the first after updates, and its figures by metric."""


def train_run(
    folder: RunFolder,
    preset: Preset,
    *,
    pairs: Path | None = None,
    minutes: float | None = None,
    report: Report = lambda number, figures: None,
    reason_to_stop: Callable[[], str] = lambda: "",
    command: str = "",
    device: str = "cpu",
    logs: Sequence[str] = (),
) -> RunInfo:
    """Train a run to its end with one torch thread, from its last saved state if it has one.

    Args:
        folder: the run's folder, which is created if it does not exist.
        preset: the run's preset.
        pairs: the file of the task's own pairs, if it has any.
        minutes: stop after so much training time, over all sessions.
        report: called after every evaluation but the one before the first update.
        reason_to_stop: called after every update; the run is stopped and saved unless it returns "".
        command: what started the training, for the run's provenance.
        device: what to train on, "cpu" or "cuda".
        logs: where else metrics are written, see ``core.runs.logs``.

    Raises:
        RunError: the folder belongs to a run with another preset, or another process uses it.
    """
    torch.set_num_threads(1)
    if not folder.exists():
        RunFolder.create(folder.path.parent, preset, name=folder.name, pairs=pairs)
    lock = folder.lock()
    try:
        if folder.preset() != preset:
            raise RunError(f"run={folder.name!r} exists already, with another preset")
        state = resume_state(folder, preset, device=device)
        history = History.load(folder.metrics)
        history.rewind(state.step, evaluated_step=state.evaluated_step)
        reasons: list[str] = []

        def should_stop() -> bool:
            if minutes is not None and state.seconds >= 60 * minutes:
                reasons.append(f"trained for the {minutes:g} minutes of its sweep")
            elif reason := reason_to_stop():
                reasons.append(reason)
            return bool(reasons)

        def on_event(event: Event) -> None:
            if isinstance(event, EvaluationEvent) and event.step:
                number = -(-event.step // preset.training.evaluate_every)
                report(number, _figures(event))

        info = train_recorded(
            folder, state, history, should_stop=should_stop, on_event=on_event, command=command, logs=logs
        )
    finally:
        lock.release()
    if info.status == "stopped" and reasons:
        folder.add_note(reasons[0])
    return info


def _figures(event: EvaluationEvent) -> dict[str, float | None]:
    """Return the figures of an evaluation by the names of a sweep's metrics."""
    evaluation = event.evaluation
    return {
        "validation_loss": evaluation.loss,
        "free_running_loss": evaluation.free_running_loss,
        "token_accuracy": evaluation.token_accuracy,
        "exact_match": evaluation.exact_match,
        "bleu": evaluation.bleu,
        "chrf": evaluation.chrf,
    }
