"""The Train tab: choose a preset, change its settings, train, and watch."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from core.config import ConfigError, load_preset, preset_names
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from ui.components.doctor import doctor
from ui.components.model_diagram import model_diagram, model_diagram_value
from ui.components.notice import notice, problem
from ui.components.training_charts import training_charts
from ui.events import QUIET
from ui.forms import own_data, preset_form
from ui.forms.preset_form import Draft, Form, form_base
from ui.run_info import settings_line
from ui.serving.errors import show_errors

FIRST_PRESET = "digits-reversal"
_STOPPABLE = ("queued", "training")
_RESUMABLE = ("stopped", "failed", "interrupted")


@dataclass(frozen=True)
class TrainTab:
    """The components that the page updates when the current run changes."""

    form: Form
    stop: gr.Button
    resume: gr.Button
    settings: gr.HTML
    charts: gr.HTML
    doctor: gr.HTML
    model: gr.HTML

    @property
    def run_outputs(self) -> list:
        """The outputs of ``run_updates``, in order."""
        return [self.stop, self.resume, self.settings, self.charts, self.doctor, self.model]


def build(runs: VisitorRuns, run: gr.State) -> TrainTab:
    """Build the tab and connect its own events; ``run`` holds the current run's name."""
    families = presets_by_family()
    first = load_preset(FIRST_PRESET)
    family = gr.Radio(
        [(name.replace("-", " "), name) for name in families],
        value=first.task.family,
        label="Task family",
        elem_id="family",
        interactive=False,
    )
    preset = gr.Radio(
        families[first.task.family], value=FIRST_PRESET, label="Preset", elem_id="preset", interactive=False
    )
    own_data_column = gr.Column(elem_id="own-data")
    form = preset_form.build(first, runs, run)
    with own_data_column:
        own_data.build(runs, form)
    with gr.Row(elem_classes="actions"):
        stop = gr.Button("Stop", interactive=False, elem_id="stop", min_width=100)
        resume = gr.Button("Resume", interactive=False, elem_id="resume", min_width=100)
        upload = gr.UploadButton(
            "Import a run",
            file_types=[".safetensors", ".zip"],
            type="filepath",
            elem_id="open-run",
            size="sm",
            min_width=170,
        )
    charts = training_charts(runs)
    with gr.Row(elem_classes="line"):
        settings = notice(elem_id="settings")
        reuse = gr.Button("Copy this run's settings", size="sm", scale=0, min_width=180, elem_id="reuse")
    with gr.Accordion("Doctor: check this run for bugs", open=False, elem_id="doctor-section"):
        findings = doctor(runs)
    with gr.Accordion("Model architecture", open=False, elem_id="model-section"):
        diagram = model_diagram()
    tab = TrainTab(form, stop, resume, settings, charts, findings, diagram)

    upload.upload(partial(import_run, runs), upload, [run, form.problem], **QUIET)
    form.open_on(family.input, partial(family_draft, families), [family, form.draft])
    form.open_on(preset.input, picked_draft, [preset, form.draft])
    form.open_on(reuse.click, partial(reused_draft, runs), [run, form.draft])
    form.edition.change(partial(preset_choice, families), form.draft, [family, preset], **QUIET)
    for button, action in ((stop, runs.stop), (resume, runs.resume)):
        button.click(show_errors(action), run, None, **QUIET).then(
            partial(run_updates, runs), run, tab.run_outputs, **QUIET
        )
    return tab


def run_updates(runs: VisitorRuns, run: str | None) -> list[Any]:
    """Return the updates for the current run: buttons, settings, charts, doctor and model."""
    if run is None:
        empty = [{"text": ""}, {"run": None}, {"run": None}, model_diagram_value(runs, None)]
        return [gr.update(interactive=False), gr.update(interactive=False), *empty]
    info = runs.info(run)
    return [
        gr.update(interactive=info.status in _STOPPABLE),
        gr.update(interactive=info.status in _RESUMABLE and not info.shipped),
        {"text": settings_line(runs, run)},
        {"run": run, "status": info.status},  # a new status makes the charts refresh immediately
        {"run": run},
        model_diagram_value(runs, run),
    ]


def import_run(runs: VisitorRuns, path: str | None) -> tuple[Any, dict[str, Any]]:
    """Import an uploaded run; return its name and an empty message, or no name and the error."""
    if path is None:
        return gr.skip(), problem("no file selected")
    file = Path(path)
    try:
        return runs.import_file(file), {"text": ""}
    except LabError as error:
        return gr.skip(), problem(error)
    finally:
        file.unlink(missing_ok=True)


def first_draft(runs: VisitorRuns, run: str | None) -> Draft:
    """Return the draft for a newly opened page: the settings of the visitor's current run, or the first preset."""
    is_own = run is not None and not runs.info(run).shipped
    start = runs.preset(run) if run is not None and is_own else load_preset(FIRST_PRESET)
    return Draft(form_base(start), start, edition=1)


def picked_draft(name: str, draft: Draft) -> Draft:
    """Return a draft that opens with the picked preset."""
    try:
        opened = draft.next(load_preset(name))
    except ConfigError:  # a preset loaded from a file, which the form already holds
        opened = draft.next(draft.start, base=draft.base)
    return replace(opened, picked="preset")


def reused_draft(runs: VisitorRuns, run: str | None, draft: Draft) -> Draft:
    """Return a draft that opens with the settings of the current run."""
    return draft.next(runs.preset(run)) if run else draft


def family_draft(families: dict[str, list[str]], family: str, draft: Draft) -> Draft:
    """Return a draft that opens with the first preset of a family of tasks."""
    if family not in families:  # the user's own pairs, which the form already holds
        return replace(draft.next(draft.start, base=draft.base), picked="family")
    return replace(picked_draft(families[family][0], draft), picked="family")


def preset_choice(families: dict[str, list[str]], draft: Draft) -> list[Any]:
    """Return the updates that show a draft's family and preset in the radio groups, also for a loaded preset.

    The group that the draft was picked from keeps its value: arrow keys may have moved on.
    """
    family, name = draft.base.task.family, draft.base.name
    names = families.get(family, [])
    choices = names if name in names else [*names, name]
    family_choices = [(each.replace("-", " "), each) for each in dict.fromkeys([*families, family])]
    family_value = {} if draft.picked else {"value": family}
    preset_value = {} if draft.picked == "preset" else {"value": name}
    return [
        gr.update(choices=family_choices, interactive=True, **family_value),
        gr.update(choices=choices, interactive=True, **preset_value),
    ]


def presets_by_family() -> dict[str, list[str]]:
    """Return the names of the presets by family of tasks; the family of the first preset comes first."""
    families: dict[str, list[str]] = {load_preset(FIRST_PRESET).task.family: []}
    for name in preset_names():
        families.setdefault(load_preset(name).task.family, []).append(name)
    for names in families.values():
        names.sort(key=lambda name: name != FIRST_PRESET)
    return families
