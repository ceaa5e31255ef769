"""The doctor's panel on the Train tab: what is wrong with the current run, in lights and sentences."""

import threading
from collections import OrderedDict
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.bug_names import BUG_FACTS
from core.doctor import Examination, examine_state
from core.errors import InputError, LabError
from core.models import parameters_of
from core.run_folder import ACTIVE
from core.tasks import build_task
from core.training import new_state
from core.visitors import VisitorRuns
from ui.components import doctor

MAX_PARAMETERS = 10_000_000  # a larger model takes longer than a page waits
KEPT = 32  # examinations


class DoctorRequest(BaseModel):
    """Which run a browser wants examined; anybody may ask, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)


class Doctor:
    """Examines runs, one at a time, and remembers what was found of which weights."""

    def __init__(self, runs: VisitorRuns) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, int], Examination] = OrderedDict()

    def examine(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what was found of a run's present weights, or ``{"error": …}``."""
        try:
            run = DoctorRequest.model_validate(request).run
            found = self._examined(run)
            return shown(found) | {"training": self.runs.info(run).status in ACTIVE}
        except ValidationError as error:
            return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}
        except LabError as error:
            return {"error": str(error)}

    def _examined(self, run: str) -> Examination:
        preset = self.runs.preset(run)
        if parameters_of(preset.model, build_task(preset.task)) > MAX_PARAMETERS:
            raise InputError(f"{run} is too large to be examined here; python -m core doctor --run {run} takes longer")
        with self._lock:
            published = self.runs.published(run)
            key = (run, published.kind, published.step)
            if key not in self._known:
                state = new_state(preset)
                state.model.load_state_dict(published.model.state_dict())
                state.step = published.step
                self._known[key] = examine_state(run, state, self.runs.history(run))
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
            return self._known[key]


def shown(found: Examination) -> dict[str, Any]:
    """Return an examination for the component."""
    return found.as_data() | {"titles": [BUG_FACTS[bug].title for bug in found.bugs]}


def build(runs: VisitorRuns) -> gr.HTML:
    """Build the panel, closed; return the component, whose value is ``{"run": name}``."""
    with gr.Accordion("Doctor: is anything wrong with this run?", open=False, elem_id="doctor-section"):
        return doctor(Doctor(runs).examine)
