"""Runs on disk: the folder, loading a trained model, recording a training, import and export; sweeps of many runs."""

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
