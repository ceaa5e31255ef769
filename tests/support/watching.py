"""Runs to watch in tests: made, waited for, and closed at the end."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from core.runs import RunInfo
from core.server import Runs

ENDLESS = {"training.steps": 5_000, "training.evaluate_every": 20}  # a quarter of a minute


def wait_for(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def wait_until(runs: Runs, name: str, *statuses: str) -> RunInfo:
    wait_for(lambda: runs.info(name).status in statuses)
    return runs.info(name)


def rows(path: Path) -> list[dict]:
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda row: (row["step"], len(row)))
