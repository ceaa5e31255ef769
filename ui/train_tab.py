"""The Train tab: pick a preset, change what you like, train, and watch."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config import ConfigError, load_preset, preset_names
from core.errors import LabError
from core.runs import Runs
from ui import preset_form
from ui.components import charts, notice
from ui.errors import shown
from ui.preset_form import QUIET, Draft, Form, form_base
from ui.views import progress_since, settings_line

FIRST_PRESET = "digits-reversal"
_STOPPABLE = ("queued", "training")
_RESUMABLE = ("stopped", "failed", "interrupted")


@dataclass(frozen=True)
class TrainTab:
    """The parts of the tab that the page sets when the current run changes."""

    form: Form
    stop: gr.Button
    resume: gr.Button
    settings: gr.HTML
    charts: gr.HTML

    @property
    def of_run(self) -> list:
        """Everything that follows the current run, in the order of ``run_shown``."""
        return [self.stop, self.resume, self.settings, self.charts]


def build(runs: Runs, run: gr.State) -> TrainTab:
    """Build the tab and wire its own events; ``run`` holds the current run's name."""
    preset = gr.Radio(preset_names(), value=FIRST_PRESET, label="Preset", elem_id="preset", interactive=False)
    form = preset_form.build(load_preset(FIRST_PRESET), runs.start, run)
    with gr.Row(elem_classes="actions"):
        stop = gr.Button("Stop", interactive=False, elem_id="stop", min_width=100)
        resume = gr.Button("Resume", interactive=False, elem_id="resume", min_width=100)
    drawn = charts(partial(progress, runs), value={"run": None})
    with gr.Row(elem_classes="line"):
        settings = notice(elem_id="settings")
        reuse = gr.Button("Use this run's settings", size="sm", scale=0, min_width=180, elem_id="reuse")
    tab = TrainTab(form, stop, resume, settings, drawn)

    form.opens(preset.input, picked_draft, [preset, form.draft])
    form.opens(reuse.click, partial(reused_draft, runs), [run, form.draft])
    form.edition.change(preset_choice, form.draft, preset, **QUIET)
    for button, action in ((stop, runs.stop), (resume, runs.resume)):
        button.click(shown(action), run, None, **QUIET).then(partial(run_shown, runs), run, tab.of_run, **QUIET)
    return tab


def run_shown(runs: Runs, run: str | None) -> list[Any]:
    """Return what the tab shows of the current run: buttons, its settings in words, its charts."""
    if run is None:
        return [gr.update(interactive=False), gr.update(interactive=False), {"text": ""}, {"run": None}]
    info = runs.info(run)
    return [
        gr.update(interactive=info.status in _STOPPABLE),
        gr.update(interactive=info.status in _RESUMABLE and not info.shipped),
        {"text": settings_line(runs, run)},
        {"run": run, "status": info.status},  # a changed status makes the charts ask at once
    ]


def first_draft(runs: Runs, run: str | None) -> Draft:
    """Return the draft a page opens with: the settings of the current run, or the first preset's."""
    own = run is not None and not runs.info(run).shipped
    start = runs.preset(run) if own else load_preset(FIRST_PRESET)
    return Draft(form_base(start), start, edition=1)


def picked_draft(name: str, draft: Draft) -> Draft:
    """Return a draft that opens with a preset picked from the list."""
    try:
        return draft.next(load_preset(name))
    except ConfigError:  # a loaded preset was picked again: it is what the form holds
        return draft.next(draft.start, base=draft.base)


def reused_draft(runs: Runs, run: str | None, draft: Draft) -> Draft:
    """Return a draft that opens with the settings of the current run."""
    return draft.next(runs.preset(run)) if run else draft


def preset_choice(draft: Draft) -> Any:
    """Show a draft's preset among the radios, also one that was loaded from a file."""
    names = preset_names()
    known = names if draft.base.name in names else [*names, draft.base.name]
    return gr.update(choices=known, value=draft.base.name, interactive=True)


class ProgressRequest(BaseModel):
    """What the charts ask for; anybody may, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)
    since_step: int = Field(default=-1, ge=-1)
    since_evaluation: int = Field(default=-1, ge=-1)


def progress(runs: Runs, request: dict[str, Any]) -> dict[str, Any]:
    """Answer the charts: where a run stands, and its figures after the steps they already have."""
    try:
        asked = ProgressRequest.model_validate(request)
        return progress_since(runs, asked.run, since_step=asked.since_step, since_evaluation=asked.since_evaluation)
    except ValidationError as error:
        return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}
    except LabError as error:
        return {"error": str(error)}
