"""Helpers for tests that start runs in the background and wait for them."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from core.runs import RunInfo
from core.server import Runs

LONG_TRAINING = {"training.steps": 5_000, "training.evaluate_every": 20}  # about 15 seconds unless stopped


def wait_for(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Poll a condition until it holds; fail after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def wait_for_status(runs: Runs, name: str, *statuses: str) -> RunInfo:
    """Wait until a run has one of these statuses."""
    wait_for(lambda: runs[name].info.status in statuses)
    return runs[name].info


def read_rows(path: Path) -> list[dict]:
    """Read a metrics file; order rows by step, training rows before evaluation rows."""
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda row: (row["step"], len(row)))
