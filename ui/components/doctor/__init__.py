"""The doctor's findings on the current run, as lights and sentences."""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.interpret.health_course import health_steps
from core.models import parameters_of
from core.runs import ACTIVE, Run
from core.runs.training_state import training_state_of
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS
from core.teaching.doctor import Examination, examine_state
from ui.components.component import RunRequest, component, validated

MAX_PARAMETERS = 10_000_000  # the doctor takes too long for a web page on larger models
MAX_CACHED = 32  # examinations
PAUSE_FACTOR = 20.0  # pause between examinations of a training run, in examination times: bounds the slowdown at 5 %


def doctor(runs: VisitorRuns) -> gr.HTML:
    """Build the component, which updates itself while it is visible. Value: ``{"run": id}``."""
    functions = {"examine": validated(RunRequest, Doctor(runs).examine)}
    return component("doctor", elem_id="doctor", server_functions=functions)


@dataclass(frozen=True)
class _Cached:
    """A run's latest examination, with the weights (kind, step) it is of and its duration by ``time.monotonic``."""

    weights: tuple[str, int]
    examination: Examination
    started: float
    ended: float

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.ended < PAUSE_FACTOR * (self.ended - self.started)


class Doctor:
    """Examines runs, one at a time, and caches the latest examination of each."""

    def __init__(self, runs: VisitorRuns) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, _Cached] = OrderedDict()

    def examine(self, request: RunRequest) -> dict[str, Any]:
        """Return the findings on a run's current weights."""
        run = self.runs[request.run]
        is_training = run.info.status in ACTIVE
        value = examination_value(self._examination(run, is_training))
        return value | {"training": is_training, "title": run.title}

    def _examination(self, run: Run, is_training: bool) -> Examination:
        if run.preset.is_watched:
            return run.examination
        if is_training and (cached := self._cache.get(run.name)) and cached.is_recent:
            return cached.examination
        started = time.monotonic()
        if parameters_of(run.preset.model, run.task()) > MAX_PARAMETERS:
            raise InputError(f"{run.title} is too large to examine here; use python -m core doctor --run {run.name}")
        with self._lock:
            loaded, cached = run.trained(), self._cache.get(run.name)
            weights = (loaded.kind, loaded.step)
            if cached and (cached.weights == weights or (is_training and cached.is_recent)):
                return cached.examination
            course = health_steps(run.replay.snapshots())
            examination = examine_state(run.name, training_state_of(loaded), run.history, course)
            self._cache[run.name] = _Cached(weights, examination, started, time.monotonic())
            while len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
            return examination


def examination_value(examination: Examination) -> dict[str, Any]:
    """Return an examination as plain data, with the titles of the bugs that it diagnosed."""
    return examination.as_data() | {"titles": [BUG_DESCRIPTIONS[bug].title for bug in examination.bugs]}
