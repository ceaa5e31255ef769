"""What a process that trains a run sends to the page's process; see ``core.server.training_process``."""

import logging
from dataclasses import dataclass
from typing import Any

from core.interpret.snapshots import Snapshot
from core.runs import RunInfo
from core.runs.recorder import evaluation_fields
from core.training.loop import EvaluationEvent, StepEvent
from core.training.state import TrainingState

SECONDS_BETWEEN_COPIES = 0.5  # of the weights of a run in training, besides those at evaluations
Weights = tuple[int, bytes]
"""A training step, and the state dict after it as safetensors."""


@dataclass(frozen=True)
class Started:
    """The training starts after ``step`` updates, the last evaluation being that of ``evaluated_step``."""

    step: int
    evaluated_step: int


@dataclass(frozen=True)
class Update:
    """How far the training is.

    Attributes:
        fields: see ``info_fields``.
        events: all since the last update.
        snapshots: attention snapshots taken since the last update.
        kept: weights kept since the last update, see ``core.runs.weights_by_step``.
        weights: a copy of the weights; None to keep the last one.
    """

    fields: dict[str, Any]
    events: tuple[StepEvent | EvaluationEvent, ...]
    snapshots: tuple[Snapshot, ...]
    kept: tuple[Weights, ...]
    weights: Weights | None


@dataclass(frozen=True)
class Logged:
    """A record of the process's log."""

    record: logging.LogRecord


@dataclass(frozen=True)
class Ended:
    """The training has ended or was stopped, and is recorded in the run's folder."""

    info: RunInfo


@dataclass(frozen=True)
class Failed:
    """The training raised an exception.

    Attributes:
        message: what it means, for the run's owner.
        trace: where it was raised, for the log.
    """

    message: str
    trace: str


Message = Started | Update | Logged | Ended | Failed


def info_fields(state: TrainingState) -> dict[str, Any]:
    """Return the fields of ``RunInfo`` that change while a run trains, but its status."""
    return {
        "message": state.notice,
        "step": state.step,
        **evaluation_fields(state.last_evaluation, state.task),
        "best_step": state.best_step if state.best_step >= 0 else None,
        "sequences_seen": state.sequences_seen,
        "seconds": state.seconds,
    }
