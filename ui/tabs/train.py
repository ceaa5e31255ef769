"""The Train tab: choose a preset, change its settings, train, and watch."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import ConfigError, Preset, load_preset, preset_names, read_preset
from core.config.tasks import NOT_HERE
from core.runs import Run
from core.server.access import VisitorRuns
from core.storage.errors import LabError, UnavailableError
from ui.components.bench import bench
from ui.components.model_diagram import model_diagram
from ui.components.notice import notice, problem
from ui.components.preset_picker import preset_picker
from ui.components.run_bar import current_run
from ui.events import QUIET
from ui.forms import import_model, own_data, preset_form
from ui.forms.preset_form import Draft, Form, Kept, form_base
from ui.forms.preset_list import first_preset, training_times
from ui.run_info import can_open, settings_line
from ui.updates import Updates, by_name

FINE_TUNING = {
    "training.optimizer": "adam",
    "training.learning_rate": 5e-5,
    "training.muon_learning_rate": 0.0,
    "training.embedding_learning_rate": 0.0,
    "training.adam_beta2": 0.0,
    "training.weight_decay": 0.0,
}
"""Settings that large models are usually fine-tuned with."""


@dataclass(frozen=True)
class TrainTab:
    """The components that the page updates when the current run changes."""

    form: Form
    settings: gr.HTML
    model: gr.HTML

    @property
    def run_outputs(self) -> dict[str, Component]:
        """The components that ``run_updates`` updates, by name."""
        return {"settings": self.settings, "model": self.model}


def build(runs: VisitorRuns, run: gr.State, bar: gr.HTML, *, reads_paths: bool = False) -> TrainTab:
    """Build the tab and connect its own events.

    Args:
        run: holds the current run's name.
        bar: the run bar.
        reads_paths: see ``build_page``.
    """
    first = first_preset()
    with gr.Row(elem_id="bench"):
        with gr.Column(elem_id="rail", min_width=0):
            picker = preset_picker(partial(training_times, runs))
            form = preset_form.build(first, picker, runs, run, bar)
            with gr.Row(elem_classes="actions", elem_id="rail-more"):
                own = gr.Button("Your own pairs", size="sm", min_width=60, elem_id="own-open")
                upload = gr.UploadButton(
                    "Import a run",
                    file_types=[".safetensors", ".zip"],
                    type="filepath",
                    elem_id="open-run",
                    size="sm",
                    min_width=60,
                )
                if reads_paths:
                    model = gr.Button("Import a model", size="sm", min_width=60, elem_id="model-open")
        with gr.Column(elem_id="bench-panels", min_width=0):
            bench(runs)
            with gr.Row(elem_classes="line"):
                settings = notice(elem_id="settings")
                reuse = gr.Button("Copy this run's settings", size="sm", scale=0, min_width=180, elem_id="reuse")
            with gr.Accordion("Model architecture", open=False, elem_id="model-section", elem_classes="fold"):
                diagram = model_diagram(runs)
        # Both are built by the browser when they are opened
        with gr.Column(elem_id="own-data", min_width=0, visible=False) as own_form:
            own_data.build(runs, form)
        own.click(None, None, own_form, js=own_data.OPEN, api_visibility="private")
        if reads_paths:
            with gr.Column(elem_id="model-import", min_width=0, visible=False) as model_form:
                import_model.build(runs, run, bar)
            model.click(None, None, model_form, js=import_model.OPEN, api_visibility="private")
    tab = TrainTab(form, settings, diagram)

    imported = {"run": run, "bar": bar, "message": form.problem}
    upload.upload(by_name(partial(import_run, runs), imported), upload, list(imported.values()), **QUIET)

    form.open_on(picker.pick, picked_draft, [picker, form.draft])
    form.open_on(reuse.click, partial(reused_draft, runs), [run, form.draft])
    return tab


def run_updates(runs: VisitorRuns, run: str | None) -> Updates:
    """Return the updates for the current run: settings and model."""
    text = "" if run is None else settings_line(runs[run])
    return {"settings": {"text": text}, "model": {"run": run}}


def import_run(runs: VisitorRuns, path: str | None) -> Updates:
    """Import an uploaded run; return the updates of the current run and of the message.

    The file stays: Gradio gives uploads of the same content one file, which another visitor may be about to open. It
    is deleted with all other temporary files, see ``ui.page.build_page``.
    """
    if path is None:
        return {"message": problem("no file selected")}
    try:
        return current_run(runs.import_file(Path(path))) | {"message": {"text": ""}}
    except LabError as error:
        return {"message": problem(error)}


def first_draft(runs: VisitorRuns, run: str | None, kept: Kept | None = None, linked: str = "") -> Draft:
    """Return the draft for a new page: a link's preset, what the tab kept, the visitor's run, or the quickest preset.

    Args:
        kept: the form before the page was reloaded, if it was changed.
        linked: the preset that a link names; ignored if there is no such preset.
    """
    if linked in preset_names():
        start = load_preset(linked)
        return Draft(start, start, edition=1, picked=linked)
    if kept:
        with suppress(LabError):  # of another version, or the server no longer has its pairs
            start = read_preset(kept.preset, name="kept")
            runs.new_run(start)
            start_from = kept.start_from if kept.start_from and can_open(runs, kept.start_from) else ""
            return Draft(base := form_base(start), start, edition=1, picked=base.name, start_from=start_from)
    chosen = None if run is None else runs[run]
    is_own = chosen is not None and not chosen.info.shipped and _is_trainable(chosen.preset)
    start = _from_scratch(chosen.preset) if chosen is not None and is_own else first_preset()
    base = form_base(start)
    return Draft(base, start, edition=1, picked=base.name, is_first=True)  # a choice made meanwhile is newer


def picked_draft(picked: Any, draft: Draft) -> Draft:
    """Return a draft that opens with the picked preset.

    Args:
        picked: the picker's value, as a browser sent it.
    """
    name = str(picked.get("chosen")) if isinstance(picked, dict) else ""
    try:
        opened = draft.next(load_preset(name))
    except ConfigError:  # a preset loaded from a file, which the form already holds
        opened = draft.next(draft.start, base=draft.base)
    return replace(opened, picked=name)


def reused_draft(runs: VisitorRuns, run: str | None, draft: Draft) -> Draft:
    """Return a draft that opens with the settings of the current run, and with the run that it began from, if any.

    Of a model of another program, the settings are those of the model. They replace those of a draft for own pairs,
    which then begins with its weights, and learns slowly, since the model has learned already.

    Raises:
        UnavailableError: the run is a training by a user's own loop; or its model was imported from another program,
            and the draft is not for own pairs of subwords.
    """
    if not run:
        return draft
    chosen = runs[run]
    if chosen.preset.is_watched:
        raise UnavailableError(f"{chosen.title} {NOT_HERE}")
    if _is_trainable(chosen.preset):
        return draft.next(_from_scratch(chosen.preset), start_from=_start_of(runs, chosen))
    if not (draft.start.task.family == "own-pairs" and draft.start.task.has_subwords):
        raise UnavailableError(
            f"{chosen.title} was imported from another program, with nothing here to train it on: open your own pairs "
            "first, with subword as their tokens, then copy its settings to train it on them"
        )
    changes = {f"model.{field}": value for field, value in chosen.preset.model.model_dump().items()}
    changes |= {"task.joint_vocabulary": chosen.preset.task.shared_vocabulary} | FINE_TUNING
    start = draft.start.with_changes(changes)
    return draft.next(start, base=start, start_from=run)


def _start_of(runs: VisitorRuns, run: Run) -> str:
    """Return the name of the run that a run began from; "" if there is none, or the visitor cannot read it."""
    name = run.info.start.run if run.info.start else ""
    return name if name and can_open(runs, name) else ""


def _from_scratch(preset: Preset) -> Preset:
    """Return a preset with the vocabularies of its own pairs, instead of those of the run that it began from."""
    return preset.with_changes({"task.vocabulary": ""}) if preset.task.inherited_vocabulary else preset


def _is_trainable(preset: Preset) -> bool:
    """Return whether a preset's task has something to train on; that of a model of another program has not."""
    return preset.task.family not in ("imported", "watched")
