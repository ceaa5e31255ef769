"""The Train tab: pick a preset, change what you like, train, and watch."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from core.config import ConfigError, load_preset, preset_names
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from ui.components.doctor import doctor
from ui.components.model_diagram import model_diagram, model_shown
from ui.components.notice import notice
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
    """The parts of the tab that the page sets when the current run changes."""

    form: Form
    stop: gr.Button
    resume: gr.Button
    settings: gr.HTML
    charts: gr.HTML
    doctor: gr.HTML
    model: gr.HTML

    @property
    def of_run(self) -> list:
        """Everything that follows the current run, in the order of ``run_shown``."""
        return [self.stop, self.resume, self.settings, self.charts, self.doctor, self.model]


def build(runs: VisitorRuns, run: gr.State) -> TrainTab:
    """Build the tab and wire its own events; ``run`` holds the current run's name."""
    of_families = presets_of_families()
    first = load_preset(FIRST_PRESET)
    family = gr.Radio(
        [(name.replace("-", " "), name) for name in of_families],
        value=first.task.family,
        label="What to learn",
        elem_id="family",
        interactive=False,
    )
    preset = gr.Radio(
        of_families[first.task.family], value=FIRST_PRESET, label="Preset", elem_id="preset", interactive=False
    )
    place = gr.Column(elem_id="own-data")
    form = preset_form.build(first, runs, run)
    with place:
        own_data.build(runs, form)
    with gr.Row(elem_classes="actions"):
        stop = gr.Button("Stop", interactive=False, elem_id="stop", min_width=100)
        resume = gr.Button("Resume", interactive=False, elem_id="resume", min_width=100)
        bring = gr.UploadButton(
            "Open a run from a file",
            file_types=[".safetensors", ".zip"],
            type="filepath",
            elem_id="open-run",
            size="sm",
            min_width=170,
        )
    charts = training_charts(runs)
    with gr.Row(elem_classes="line"):
        settings = notice(elem_id="settings")
        reuse = gr.Button("Use this run's settings", size="sm", scale=0, min_width=180, elem_id="reuse")
    with gr.Accordion("Doctor: is anything wrong with this run?", open=False, elem_id="doctor-section"):
        findings = doctor(runs)
    with gr.Accordion("Model architecture", open=False, elem_id="model-section"):
        diagram = model_diagram()
    tab = TrainTab(form, stop, resume, settings, charts, findings, diagram)

    bring.upload(partial(brought, runs), bring, [run, form.problem], **QUIET)
    form.opens(family.input, partial(family_draft, of_families), [family, form.draft])
    form.opens(preset.input, picked_draft, [preset, form.draft])
    form.opens(reuse.click, partial(reused_draft, runs), [run, form.draft])
    form.edition.change(partial(preset_choice, of_families), form.draft, [family, preset], **QUIET)
    for button, action in ((stop, runs.stop), (resume, runs.resume)):
        button.click(show_errors(action), run, None, **QUIET).then(partial(run_shown, runs), run, tab.of_run, **QUIET)
    return tab


def run_shown(runs: VisitorRuns, run: str | None) -> list[Any]:
    """Return what the tab shows of the current run: buttons, its settings in words, its charts."""
    if run is None:
        nothing = [{"text": ""}, {"run": None}, {"run": None}, model_shown(runs, None)]
        return [gr.update(interactive=False), gr.update(interactive=False), *nothing]
    info = runs.info(run)
    return [
        gr.update(interactive=info.status in _STOPPABLE),
        gr.update(interactive=info.status in _RESUMABLE and not info.shipped),
        {"text": settings_line(runs, run)},
        {"run": run, "status": info.status},  # a changed status makes the charts ask at once
        {"run": run},
        model_shown(runs, run),
    ]


def brought(runs: VisitorRuns, path: str | None) -> tuple[Any, dict[str, Any]]:
    """Take in an uploaded run; return its name and no problem, or no name and the problem."""
    if path is None:
        return gr.skip(), {"text": "no file was chosen", "problem": True}
    file = Path(path)
    try:
        return runs.import_file(file), {"text": ""}
    except LabError as error:
        return gr.skip(), {"text": str(error), "problem": True}
    finally:
        file.unlink(missing_ok=True)


def first_draft(runs: VisitorRuns, run: str | None) -> Draft:
    """Return the draft a page opens with: the settings of the current run, or the first preset's."""
    own = run is not None and not runs.info(run).shipped
    start = runs.preset(run) if own else load_preset(FIRST_PRESET)
    return Draft(form_base(start), start, edition=1)


def picked_draft(name: str, draft: Draft) -> Draft:
    """Return a draft that opens with a preset picked from the list."""
    try:
        opened = draft.next(load_preset(name))
    except ConfigError:  # a loaded preset was picked again: it is what the form holds
        opened = draft.next(draft.start, base=draft.base)
    return replace(opened, picked="preset")


def reused_draft(runs: VisitorRuns, run: str | None, draft: Draft) -> Draft:
    """Return a draft that opens with the settings of the current run."""
    return draft.next(runs.preset(run)) if run else draft


def family_draft(of_families: dict[str, list[str]], family: str, draft: Draft) -> Draft:
    """Return a draft that opens with the first preset of a family of tasks."""
    if family not in of_families:  # own data, which the form holds
        return replace(draft.next(draft.start, base=draft.base), picked="family")
    return replace(picked_draft(of_families[family][0], draft), picked="family")


def preset_choice(of_families: dict[str, list[str]], draft: Draft) -> list[Any]:
    """Show a draft's family and preset among the radios, also a preset that was loaded from a file.

    What was picked there stays as it is: arrow keys may have gone further meanwhile.
    """
    family, name = draft.base.task.family, draft.base.name
    names = of_families.get(family, [])
    known = names if name in names else [*names, name]
    families = [(each.replace("-", " "), each) for each in dict.fromkeys([*of_families, family])]
    family_now = {} if draft.picked else {"value": family}
    preset_now = {} if draft.picked == "preset" else {"value": name}
    return [
        gr.update(choices=families, interactive=True, **family_now),
        gr.update(choices=known, interactive=True, **preset_now),
    ]


def presets_of_families() -> dict[str, list[str]]:
    """Return the names of the presets by family of tasks, the family of the first preset first."""
    families: dict[str, list[str]] = {load_preset(FIRST_PRESET).task.family: []}
    for name in preset_names():
        families.setdefault(load_preset(name).task.family, []).append(name)
    for names in families.values():
        names.sort(key=lambda name: name != FIRST_PRESET)
    return families
