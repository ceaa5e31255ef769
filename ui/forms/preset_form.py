"""The form under the presets: every setting in groups, checked as it is typed, saved and loaded as YAML."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
from ui.components.notice import notice
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
from ui.run_info import base_of, changes_in_words
from ui.serving.errors import show_errors
from ui.web import script


@dataclass(frozen=True)
class Draft:
    """A form in the making.

    Attributes:
        base: what changes are measured against.
        start: what the form opens with.
        edition: counts up; a new one opens the form anew, even with the values it opened with before.
        picked: the radio buttons that it was picked from, such as ``preset``; they may show a later choice by now.
    """

    base: Preset
    start: Preset
    edition: int = 0
    picked: Literal["family", "preset", ""] = ""

    def next(self, start: Preset, *, base: Preset | None = None) -> "Draft":
        """Return a new draft that opens with ``start``."""
        return Draft(base or form_base(start), start, self.edition + 1)


@dataclass(frozen=True)
class Form:
    """A session's form: a control for every setting, those of other families hidden.

    The draft lives on the server, the controls in the browser. ``edition`` stands in both, so that a button pressed
    while a new draft is on its way is noticed.
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
    def filled(self) -> list:
        """The inputs of a function that reads the form: see ``preset_in``."""
        return [self.draft, self.edition, *self.controls]

    def opens(self, listen: Callable[..., Dependency], function: Callable[..., Draft | None], inputs: list) -> None:
        """Open the form with the draft that ``function`` makes when an event happens, or say why there is none.

        Where it makes none, the form stays as it is.
        """
        outputs = [self.problem, self.draft, self.edition, self.summary, self.train, *self.controls]

        def opened(*values: Any) -> list[Any]:
            try:
                draft = function(*values)
                if draft is None:
                    return [gr.skip()] * len(outputs)
                summary = described(self.runs, draft.start, draft.base)
            except LabError as error:
                return [{"text": str(error), "problem": True}, *[gr.skip()] * (len(outputs) - 1)]
            ready = gr.update(interactive=True)
            updates = [_opened(setting, draft) for setting in self.settings]
            return [{"text": ""}, draft, draft.edition, summary, ready, *updates]

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
        first: the preset to begin with, until the page is open.
        runs: start a run with what the form holds, whose name goes into ``run``; their limits are told as it is filled.
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
            "Load preset", file_types=[".yaml", ".yml"], type="binary", elem_id="load-preset", **small
        )
    problem = notice(elem_id="train-problem")
    saved = gr.Textbox(visible="hidden", elem_id="saved-preset")
    edition = gr.Number(visible="hidden", elem_id="edition")
    form = Form(gr.State(Draft(first, first)), edition, settings, controls, summary, problem, train, runs)

    form.opens(reset.click, lambda draft: draft.next(draft.base, base=draft.base), [form.draft])
    form.opens(load.upload, loaded_draft, [load, form.draft])
    gr.on(
        [each.input for each in controls],
        partial(check, runs, settings),
        form.filled,
        [summary, problem, *controls],
        **LATEST,
        **QUIET,
    ).then(partial(check_timed, runs, settings), form.filled, summary, **LATEST, **QUIET, **CPU)
    train.click(partial(started, runs.start, settings), form.filled, [run, problem], **QUIET)
    save.click(show_errors(partial(as_yaml, settings)), form.filled, saved, **QUIET).success(
        None, saved, None, js=script("download_preset"), api_visibility="private"
    )
    return form


def preset_in(settings: list[Setting], draft: Draft, edition: float | None, *values: Any) -> Preset:
    """Return the preset that a form holds.

    Raises:
        ConfigError: a value does not fit, or the form was being opened anew when it was read.
    """
    if edition != draft.edition:
        raise ConfigError([("preset", "the form was just being changed; try again")])
    return preset_from(draft.base, settings, values)


def check(runs: VisitorRuns, settings: list[Setting], draft: Draft, edition: float, *values: Any) -> list[Any]:
    """Return the summary line, an empty line where an older problem stood, and the line under each control."""
    problems: list[tuple[str, str]] = []
    try:
        preset = preset_in(settings, draft, edition, *values)
        runs.limits.check(preset, pairs=runs.pairs_of(preset))
        summary = described(runs, preset, draft.base)
    except ConfigError as error:
        summary, problems = {"text": str(error), "problem": True}, error.problems
    hints = hints_with_problems(draft.base, settings, values, problems)
    return [summary, {"text": ""}, *(gr.update(info=hint) for hint in hints)]


def check_timed(
    runs: VisitorRuns, settings: list[Setting], draft: Draft, edition: float, *values: Any
) -> dict[str, Any]:
    """Return the summary line with the expected time, which takes about a second to measure."""
    try:
        return timed(runs, preset_in(settings, draft, edition, *values), draft.base)
    except ConfigError as error:
        return {"text": str(error), "problem": True}


def timed(runs: VisitorRuns, preset: Preset, base: Preset) -> dict[str, Any]:
    """Describe a preset with the time it will take; one that asks for too much is not tried."""
    try:
        pairs = runs.pairs_of(preset)
        runs.limits.check(preset, pairs=pairs)
        return described(runs, preset, base, seconds=seconds_to_train(preset, pairs=pairs))
    except LabError as error:  # among others, that its data is not here
        return {"text": str(error), "problem": True}


def described(runs: VisitorRuns, preset: Preset, base: Preset, *, seconds: float | None = math.inf) -> dict[str, Any]:
    """Describe a preset in a line: what it does, its size, the time it will take, and what was changed.

    Args:
        seconds: to train it; infinite if that is still to be measured, None if it is too large to.
    """
    task = build_task(preset.task, pairs=runs.pairs_of(preset))
    parts = [preset.description.rstrip("."), f"{parameters_of(preset.model, task):,} parameters"]
    if seconds == math.inf:
        parts.append("measuring how long it takes here …")
    else:
        parts.append(f"about {_in_words(seconds)} on this machine" if seconds else "too large to time here")
    changes = changes_in_words(preset, base)
    return {"text": " · ".join(parts + ([f"changed: {changes}"] if changes else []))}


def started(start: Callable[[Preset], str], settings: list[Setting], *filled: Any) -> tuple[Any, dict]:
    """Start a run from the filled form; return its name and no problem, or no name and the problem."""
    try:
        return start(preset_in(settings, *filled)), {"text": ""}
    except LabError as error:
        return gr.skip(), {"text": str(error), "problem": True}


def as_yaml(settings: list[Setting], draft: Draft, *filled: Any) -> str:
    """Return the filled form as a preset file; a changed preset is no longer the one of its name."""
    preset = preset_in(settings, draft, *filled)
    name = preset.name if preset == draft.base else f"{preset.name[:40]}-changed"
    return preset_to_yaml(preset.model_copy(update={"name": name}))


def loaded_draft(data: bytes | None, draft: Draft) -> Draft:
    """Return a draft that opens with an uploaded preset; ConfigError if it is not a valid one."""
    if data is None:
        raise ConfigError([("preset", "no file was chosen")])
    return draft.next(read_preset(data, name="loaded"))


def form_base(start: Preset) -> Preset:
    """Return what a form measures changes against: the preset it was made from, if that is of the same families."""
    base = base_of(start)
    same = all(setting.applies_to(base) for setting in all_settings() if setting.applies_to(start))
    return base if same else start


def _opened(setting: Setting, draft: Draft) -> Any:
    """Return what a control becomes when the form opens with a draft."""
    if not setting.applies_to(draft.start):
        return gr.update(visible=False)
    start = value_in(draft.start, setting)
    return gr.update(visible=True, value=start, info=hint_of(setting, start, value_in(draft.base, setting)))


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
