"""A run on disk: its folder and name, and what a training leaves there: weights, figures, snapshots of attention."""

from core.runs.folder import (
    ACTIVE,
    DEFAULT_ROOT,
    RunError,
    RunFolder,
    RunInfo,
    Status,
    check_resumable,
    list_runs,
    sweep,
)

__all__ = [
    "ACTIVE",
    "DEFAULT_ROOT",
    "RunError",
    "RunFolder",
    "RunInfo",
    "Status",
    "check_resumable",
    "list_runs",
    "sweep",
]
