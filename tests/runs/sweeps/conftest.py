"""Sweeps of a preset that trains in milliseconds, and processes that are threads."""

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.config import Preset
from core.runs import RunFolder
from core.runs.sweeps.driver import Driver, RunResult
from core.runs.sweeps.folder import SweepFile, SweepFolder
from core.runs.sweeps.processes import Message
from core.runs.sweeps.search import GridSearch, OptunaSearch
from core.runs.sweeps.sweep import Sweep, parse_sweep
from core.runs.sweeps.training import reported, sweep_training
from core.runs.sweeps.trials import grid_trials
from core.runs.sweeps.worker import PRUNED, STOPPED, Request

GRID = {"model.d_model": [16, 32], "training.learning_rate": [0.003, 0.01]}


def make_sweep(**fields: Any) -> Sweep:
    """A sweep of ``small.yaml``; grid of 2 x 2 and two seeds unless fields say otherwise."""
    return parse_sweep({"name": "s", "preset": "small.yaml", "axes": GRID, "seeds": 2} | fields)


def train_in_threads(monkeypatch: pytest.MonkeyPatch, process: type | None = None) -> None:
    """Let sweeps train in threads, and do not estimate the memory of a run, which takes longer than to train it."""
    monkeypatch.setattr("core.runs.sweeps.driver.RunProcess", process or ThreadProcess)
    monkeypatch.setattr("core.runs.sweeps.checks.training_memory", lambda *_: SimpleNamespace(total=10_000_000))


class ThreadProcess:
    """Trains in a thread of this process, as ``RunProcess`` does in another one."""

    def __init__(self, request: Request, messages: "queue.SimpleQueue[Message]") -> None:
        self.request, self._messages = request, messages
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reasons: list[str] = []
        self.code = 0
        self._thread = threading.Thread(target=self._train)
        self._thread.start()

    def send(self, line: str) -> None:
        self._answers.put(line)

    def stop(self) -> None:
        self._reasons.append(STOPPED)
        self._answers.put("")

    def end(self) -> tuple[int, str]:
        self._thread.join()
        return self.code, "it says why"

    def _train(self) -> None:
        try:
            self.train()
        finally:
            self._messages.put(Message(self, None))  # type: ignore[arg-type]

    def train(self) -> None:
        with sweep_training(
            RunFolder(Path(self.request.root), self.request.run),
            Preset.model_validate_json(self.request.preset),
            pairs=Path(self.request.pairs) if self.request.pairs else None,
            logs=self.request.logs,
        ) as run:
            for report in reported(run, minutes=self.request.minutes, reasons=self._reasons):
                self._messages.put(Message(self, report))  # type: ignore[arg-type]
                if self.request.waits and self._answers.get() == "prune":
                    self._reasons.append(PRUNED)


class Held(ThreadProcess):
    """Trains when the test lets it, or to save immediately when it is told to stop."""

    release = threading.Event()

    def train(self) -> None:
        while not self.release.wait(0.01) and not self._reasons:
            pass
        super().train()


@pytest.fixture
def drive(root: Path, tiny: Preset, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[RunResult]]:
    """Return a function that brings a sweep to its end in threads, and returns the results in the order they came."""

    def run(
        sweep: Sweep, *, jobs: int = 2, memory: int = 1, process: type = ThreadProcess, extend: bool = False, **settings
    ):
        monkeypatch.setattr("core.runs.sweeps.driver.RunProcess", process)
        monkeypatch.setattr("core.runs.sweeps.driver.memory_of", lambda preset, pairs: memory)
        monkeypatch.setattr("core.runs.sweeps.driver.memory_for_runs", lambda: 100)
        folder = SweepFolder(root, sweep.name)
        file = SweepFile(sweep=sweep, base=tiny)
        folder.prepare(file, extend=extend)
        search = OptunaSearch(file, folder) if sweep.needs_optuna else GridSearch(grid_trials(sweep, tiny), folder)
        results: list[RunResult] = []
        driver = Driver(folder, file, search, jobs=jobs, on_result=results.append, **settings)
        driver.run()
        return results

    return run
