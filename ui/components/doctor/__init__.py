"""The doctor's panel on the Train tab: what is wrong with the current run, in lights and sentences."""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.models import parameters_of
from core.runs import ACTIVE
from core.runs.training_state import training_state_of
from core.server.access import VisitorRuns
from core.storage.errors import InputError, LabError
from core.tasks import build_task
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS
from core.teaching.doctor import Examination, examine_state
from ui.components.component import component


def doctor(runs: VisitorRuns, *, elem_id: str = "doctor") -> gr.HTML:
    """The doctor's findings on a run, updated while visible. Value: ``{"run": id}``."""
    functions = {"examine": Doctor(runs).examine}
    return component(
        "doctor", elem_id=elem_id, server_functions=functions, scripts=["lights.js"], styles=["lights.css"]
    )


MAX_PARAMETERS = 10_000_000  # a larger model takes longer than a page waits
KEPT = 32  # examinations
REST = 20.0  # times as long as an examination took, before a run in training has the next: it would slow down


class DoctorRequest(BaseModel):
    """Which run a browser wants examined; anybody may ask, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)


@dataclass(frozen=True)
class _Latest:
    """The latest examination of a run: of which weights, and from when to when, by ``time.monotonic``."""

    of: tuple[str, int]
    found: Examination
    began: float
    ended: float

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.ended < REST * (self.ended - self.began)


class Doctor:
    """Examines runs, one at a time, and remembers what was found of which weights."""

    def __init__(self, runs: VisitorRuns) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._latest: OrderedDict[str, _Latest] = OrderedDict()

    def examine(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what was found of a run's present weights, or ``{"error": …}``."""
        try:
            run = DoctorRequest.model_validate(request).run
            is_training = self.runs.info(run).status in ACTIVE
            return examination_value(self._examined(run, is_training)) | {"training": is_training}
        except ValidationError as error:
            return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}
        except LabError as error:
            return {"error": str(error)}

    def _examined(self, run: str, is_training: bool) -> Examination:
        if is_training and (latest := self._latest.get(run)) and latest.is_recent:
            return latest.found
        began = time.monotonic()
        preset = self.runs.preset(run)
        if parameters_of(preset.model, build_task(preset.task, pairs=self.runs.folder(run).pairs)) > MAX_PARAMETERS:
            raise InputError(f"{run} is too large to be examined here; python -m core doctor --run {run} takes longer")
        with self._lock:
            loaded, latest = self.runs.loaded(run), self._latest.get(run)
            weights = (loaded.kind, loaded.step)
            if latest and (latest.of == weights or (is_training and latest.is_recent)):
                return latest.found
            found = examine_state(run, training_state_of(loaded), self.runs.history(run))
            self._latest[run] = _Latest(weights, found, began, time.monotonic())
            while len(self._latest) > KEPT:
                self._latest.popitem(last=False)
            return found


def examination_value(found: Examination) -> dict[str, Any]:
    """Return an examination for the component."""
    return found.as_data() | {"titles": [BUG_DESCRIPTIONS[bug].title for bug in found.bugs]}
