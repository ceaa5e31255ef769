"""Runs on disk: ``Runs`` and ``Run``, loading a model, recording a training, import and export; sweeps of many runs."""

from typing import TYPE_CHECKING, Any

from core.runs.folder import (
    DEFAULT_ROOT,
    RunError,
    RunFolder,
    check_resumable,
    delete_leftovers,
    list_runs,
    other_titles,
)
from core.runs.info import ACTIVE, RunInfo, RunQuality, Status, TrainingSession, ValidationFigures
from core.runs.run import Run, RunProgress, Runs

if TYPE_CHECKING:
    from core.runs.load import load_run

__all__ = [
    "ACTIVE",
    "DEFAULT_ROOT",
    "Run",
    "RunError",
    "RunFolder",
    "RunInfo",
    "RunProgress",
    "RunQuality",
    "Runs",
    "Status",
    "TrainingSession",
    "ValidationFigures",
    "check_resumable",
    "delete_leftovers",
    "list_runs",
    "load_run",
    "other_titles",
]


def __getattr__(name: str) -> Any:
    """Import what loads models, and so torch, when it is first used: lists and tables of runs take half the time."""
    if name == "load_run":
        from core.runs.load import load_run

        return load_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
