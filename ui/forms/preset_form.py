"""The preset form: a control for every setting, validated while typing, saved and loaded as YAML."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

from core.config import SECTIONS, ConfigError, Preset, preset_to_yaml, read_preset
from core.models import parameters_of
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from core.tasks import build_task
from core.training.estimate import seconds_to_train
from ui.components.notice import notice, problem
from ui.events import CPU, LATEST, QUIET
from ui.forms.setting_controls import (
    Setting,
    all_settings,
    control,
    hint_of,
    hints_with_problems,
    preset_from,
    value_in,
)
from ui.run_info import describe_changes, shipped_preset
from ui.serving.errors import show_errors
from ui.web import script


@dataclass(frozen=True)
class Draft:
    """The preset that a form is opened with.

    Attributes:
        base: the preset that changes are reported against.
        start: the form's initial values.
        edition: number of the draft; a new number reopens the form, even with the same values.
        picked: the radio group the draft was picked from; it may already show a later choice and is left alone.
    """

    base: Preset
    start: Preset
    edition: int = 0
    picked: Literal["family", "preset", ""] = ""

    def next(self, start: Preset, *, base: Preset | None = None) -> "Draft":
        """Return the next draft, which opens with ``start``."""
        return Draft(base or form_base(start), start, self.edition + 1)


@dataclass(frozen=True)
class Form:
    """The form of one session: a control for every setting; those of other model families are hidden.

    The draft is on the server, the controls are in the browser. Both hold ``edition``, so that a button pressed while
    a new draft is on its way is detected.
    """

    draft: gr.State
    edition: gr.Number
    settings: list[Setting]
    controls: list[Component]
    summary: gr.HTML
    problem: gr.HTML
    train: gr.Button
    runs: VisitorRuns

    @property
    def inputs(self) -> list:
        """The inputs of a handler that reads the form: see ``preset_in``."""
        return [self.draft, self.edition, *self.controls]

    def open_on(self, listen: Callable[..., Dependency], function: Callable[..., Draft | None], inputs: list) -> None:
        """Open the form with the draft that ``function`` returns after an event, or show why it failed.

        None leaves the form unchanged.
        """
        outputs = [self.problem, self.draft, self.edition, self.summary, self.train, *self.controls]

        def opened(*values: Any) -> list[Any]:
            try:
                draft = function(*values)
                if draft is None:
                    return [gr.skip()] * len(outputs)
                summary = described(self.runs, draft.start, draft.base)
            except LabError as error:
                return [problem(error), *[gr.skip()] * (len(outputs) - 1)]
            enabled = gr.update(interactive=True)
            updates = [_opened_control(setting, draft) for setting in self.settings]
            return [{"text": ""}, draft, draft.edition, summary, enabled, *updates]

        listen(opened, inputs, outputs, **LATEST, **QUIET).then(
            lambda draft: timed(self.runs, draft.start, draft.base),
            self.draft,
            self.summary,
            **LATEST,
            **QUIET,
            **CPU,
        )


def build(first: Preset, runs: VisitorRuns, run: gr.State) -> Form:
    """Build the form with its buttons.

    Args:
        first: the preset shown until the page has loaded.
        runs: start the run, and provide the limits that the form is validated against.
        run: receives the name of the started run.
    """
    settings = all_settings()
    summary = notice(elem_id="summary")
    controls: list[Component] = []
    for section in SECTIONS:
        with gr.Accordion(section.capitalize(), open=False, elem_id=f"section-{section}"), gr.Row(elem_classes="grid"):
            controls += [
                control(setting, visible=setting.applies_to(first))
                for setting in settings
                if setting.section == section
            ]
    small: dict[str, Any] = {"size": "sm", "min_width": 110}
    with gr.Row(elem_classes="actions"):
        train = gr.Button("Train", variant="primary", interactive=False, elem_id="train", min_width=100)
        reset = gr.Button("Reset to preset", elem_id="reset", **small)
        save = gr.Button("Save preset (YAML)", elem_id="save-preset", **small)
        load = gr.UploadButton(
            "Load preset (YAML)", file_types=[".yaml", ".yml"], type="binary", elem_id="load-preset", **small
        )
    message = notice(elem_id="train-problem")
    yaml = gr.Textbox(visible="hidden", elem_id="saved-preset")
    edition = gr.Number(visible="hidden", elem_id="edition")
    form = Form(gr.State(Draft(first, first)), edition, settings, controls, summary, message, train, runs)

    form.open_on(reset.click, lambda draft: draft.next(draft.base, base=draft.base), [form.draft])
    form.open_on(load.upload, loaded_draft, [load, form.draft])
    gr.on(
        [each.input for each in controls],
        partial(check, runs, settings),
        form.inputs,
        [summary, message, *controls],
        **LATEST,
        **QUIET,
    ).then(partial(check_timed, runs, settings), form.inputs, summary, **LATEST, **QUIET, **CPU)
    train.click(partial(started, runs.start, settings), form.inputs, [run, message], **QUIET)
    save.click(show_errors(partial(as_yaml, settings)), form.inputs, yaml, **QUIET).success(
        None, yaml, None, js=script("download_preset"), api_visibility="private"
    )
    return form


def preset_in(settings: list[Setting], draft: Draft, edition: float | None, *values: Any) -> Preset:
    """Return the preset that a form describes.

    Raises:
        ConfigError: a value is invalid, or the form was being reopened while it was read.
    """
    if edition != draft.edition:
        raise ConfigError([("preset", "the form was still loading; try again")])
    return preset_from(draft.base, settings, values)


def check(runs: VisitorRuns, settings: list[Setting], draft: Draft, edition: float, *values: Any) -> list[Any]:
    """Validate the form; return its summary, an empty error message, and the hint under each control."""
    problems: list[tuple[str, str]] = []
    try:
        preset = preset_in(settings, draft, edition, *values)
        runs.limits.check(preset, pairs=runs.pairs_of(preset))
        summary = described(runs, preset, draft.base)
    except ConfigError as error:
        summary, problems = problem(error), error.problems
    hints = hints_with_problems(draft.base, settings, values, problems)
    return [summary, {"text": ""}, *(gr.update(info=hint) for hint in hints)]


def check_timed(
    runs: VisitorRuns, settings: list[Setting], draft: Draft, edition: float, *values: Any
) -> dict[str, Any]:
    """Return the form's summary with the estimated training time, which takes about a second to measure."""
    try:
        return timed(runs, preset_in(settings, draft, edition, *values), draft.base)
    except ConfigError as error:
        return problem(error)


def timed(runs: VisitorRuns, preset: Preset, base: Preset) -> dict[str, Any]:
    """Return a preset's summary with the estimated training time; a preset beyond the limits is not measured."""
    try:
        pairs = runs.pairs_of(preset)
        runs.limits.check(preset, pairs=pairs)
        return described(runs, preset, base, seconds=measured_seconds(preset, pairs=pairs))
    except LabError as error:  # for instance, the visitor does not have the preset's pairs
        return problem(error)


measured_seconds = lru_cache(maxsize=256)(seconds_to_train)  # the form opens on the same presets again and again


def described(runs: VisitorRuns, preset: Preset, base: Preset, *, seconds: float | None = math.inf) -> dict[str, Any]:
    """Return a preset's summary: description, number of parameters, training time and changed settings.

    Args:
        seconds: estimated training time; infinity while it is being measured, None if the model is too large for that.
    """
    task = build_task(preset.task, pairs=runs.pairs_of(preset))
    parts = [preset.description.rstrip("."), f"{parameters_of(preset.model, task):,} parameters"]
    if seconds == math.inf:
        parts.append("estimating the training time …")
    else:
        parts.append(f"about {_duration(seconds)} on this machine" if seconds else "too large to estimate the time")
    changes = describe_changes(preset, base)
    return {"text": " · ".join(parts + ([f"changed: {changes}"] if changes else []))}


def started(start: Callable[[Preset], str], settings: list[Setting], *inputs: Any) -> tuple[Any, dict]:
    """Start a run from the form; return its name and an empty message, or no name and the error."""
    try:
        return start(preset_in(settings, *inputs)), {"text": ""}
    except LabError as error:
        return gr.skip(), problem(error)


def as_yaml(settings: list[Setting], draft: Draft, *inputs: Any) -> str:
    """Return the form as a preset file; a changed preset gets a name of its own."""
    preset = preset_in(settings, draft, *inputs)
    name = preset.name if preset == draft.base else f"{preset.name[:40]}-changed"
    return preset_to_yaml(preset.model_copy(update={"name": name}))


def loaded_draft(data: bytes | None, draft: Draft) -> Draft:
    """Return a draft that opens with an uploaded preset; ConfigError if it is invalid."""
    if data is None:
        raise ConfigError([("preset", "no file selected")])
    return draft.next(read_preset(data, name="loaded"))


def form_base(start: Preset) -> Preset:
    """Return the preset that changes are reported against: the shipped preset, if it is of the same families."""
    base = shipped_preset(start)
    same_families = all(setting.applies_to(base) for setting in all_settings() if setting.applies_to(start))
    return base if same_families else start


def _opened_control(setting: Setting, draft: Draft) -> Any:
    """Return the update of a control when the form opens with a draft."""
    if not setting.applies_to(draft.start):
        return gr.update(visible=False)
    start = value_in(draft.start, setting)
    return gr.update(visible=True, value=start, info=hint_of(setting, start, value_in(draft.base, setting)))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
