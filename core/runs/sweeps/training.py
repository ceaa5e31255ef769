"""Train one run of a sweep, from its last saved state if it has one, and report its evaluations.

It knows no search and no process, so that other programs than ``core.runs.sweeps.worker`` can call it.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from core.config import Preset
from core.runs import RunError, RunFolder
from core.runs.training import Training, training
from core.training.loop import EvaluationEvent, StepEvent


def sweep_training(
    folder: RunFolder,
    preset: Preset,
    *,
    pairs: Path | None = None,
    command: str = "",
    device: str = "cpu",
    logs: Sequence[str] = (),
) -> AbstractContextManager[Training]:
    """Return the training of a run of a sweep, with one torch thread; see ``core.runs.training.training``.

    Args:
        folder: the run's folder, which is created if it does not exist.
        preset: the run's preset.
        pairs: the file of the task's own pairs, if it has any.
        command: what started the training, for the run's provenance.
        device: what to train on, "cpu" or "cuda".
        logs: where else metrics are written, see ``core.runs.logs``.

    Raises:
        RunError: the folder belongs to a run with another preset.
    """
    torch.set_num_threads(1)
    if not folder.exists():
        RunFolder.create(folder.path.parent, preset, name=folder.name, pairs=pairs)
    if folder.read_preset() != preset:
        raise RunError(f"run={folder.name!r} exists already, with another preset")
    return training(folder, device=device, command=command, logs=logs)


def reported(run: Training, *, minutes: float | None, reasons: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Train a run to its end, and report its evaluations but the one before the first update.

    Args:
        minutes: stop after so much training time, over all sessions.
        reasons: may grow during the training; as soon as there is one, the run stops after its present update.

    Yields:
        {"evaluation": number, "figures": {metric: value}}: the number from 1, the figures by the names of a sweep's
        metrics.
    """
    for event in run:
        if isinstance(event, EvaluationEvent) and event.step:
            number = -(-event.step // run.state.preset.training.evaluate_every)
            yield {"evaluation": number, "figures": _figures(event)}
        elif isinstance(event, StepEvent):
            if minutes is not None and run.state.seconds >= 60 * minutes:
                run.reason = f"trained for the {minutes:g} minutes of its sweep"
            elif reasons:
                run.reason = reasons[0]
            if run.reason:
                break


def _figures(event: EvaluationEvent) -> dict[str, float | None]:
    evaluation = event.evaluation
    return {
        "validation_loss": evaluation.loss,
        "free_running_loss": evaluation.free_running_loss,
        "token_accuracy": evaluation.token_accuracy,
        "exact_match": evaluation.exact_match,
        "bleu": evaluation.bleu,
        "chrf": evaluation.chrf,
    }
