"""Runs on disk: the folder, loading a trained model, recording a training, import and export; sweeps of many runs."""

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

if TYPE_CHECKING:
    from core.runs.load import LoadedRun, RunSource, SavedRuns, load_run

__all__ = [
    "ACTIVE",
    "DEFAULT_ROOT",
    "LoadedRun",
    "RunError",
    "RunFolder",
    "RunInfo",
    "RunQuality",
    "RunSource",
    "SavedRuns",
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
    if name in ("LoadedRun", "RunSource", "SavedRuns", "load_run"):
        from core.runs import load

        return getattr(load, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
