"""The form under the presets: every setting in groups, checked as it is typed, saved and loaded as YAML."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from core.config import SECTIONS, ConfigError, Preset, preset_to_yaml, read_preset
from core.errors import LabError
from core.estimate import seconds_to_train
from core.models import parameters_of
from core.tasks import build_task
from ui.components import notice
from ui.errors import shown
from ui.scripts import script
from ui.settings_form import Setting, control, hints_with_problems, preset_from, settings_of, value_in
from ui.views import base_of, changes_in_words

SECTION_TITLES = {"task": "Task", "model": "Model", "training": "Training"}
QUIET = {"api_visibility": "private", "show_progress": "hidden"}
_CPU = {"concurrency_id": "cpu", "concurrency_limit": 2}


@dataclass(frozen=True)
class Draft:
    """A form in the making.

    Attributes:
        base: what changes are measured against.
        start: what the form opens with.
        edition: counts up; a new one opens the form anew, even with the values it opened with before.
    """

    base: Preset
    start: Preset
    edition: int = 0

    def next(self, start: Preset, *, base: Preset | None = None) -> "Draft":
        """Return a new draft that opens with ``start``."""
        return Draft(base or _form_base(start), start, self.edition + 1)


@dataclass(frozen=True)
class Form:
    """A session's form: its draft, and the draft's edition in a hidden number field.

    A State announces one change several times, and each would remake the form under the visitor's hands; a number
    field announces it once.
    """

    draft: gr.State
    edition: gr.Number

    @classmethod
    def new(cls) -> "Form":
        """Make the two, where the page is being built."""
        return cls(gr.State(None), gr.Number(visible="hidden", elem_id="edition"))

    def follow(self, event: gr.events.Dependency) -> None:
        """Open the form anew after an event that set the draft."""
        event.success(lambda draft: draft.edition, self.draft, self.edition, **QUIET)


def build(form: Form, train: gr.Button, start: Callable[[Preset], str], run: gr.State, problem: gr.HTML) -> None:
    """Build the form, remade for every new edition of the draft.

    Args:
        train: the button that starts a run with what the form holds.
        start: starts a run and returns its name, which goes into ``run``.
        problem: where to say why no run was started.
    """
    draft, edition = form.draft, form.edition
    summary = notice(elem_id="summary")
    open_form = gr.Column(elem_id="form")
    with gr.Row(elem_classes="actions"):
        reset = gr.Button("Reset to preset", size="sm", min_width=130, elem_id="reset")
        save = gr.Button("Save preset (YAML)", size="sm", min_width=130, elem_id="save-preset")
        load = gr.UploadButton(
            "Load preset", file_types=[".yaml", ".yml"], type="binary", size="sm", min_width=130, elem_id="load-preset"
        )
    saved = gr.Textbox(visible="hidden", elem_id="saved-preset")
    form.follow(reset.click(lambda draft: draft.next(draft.base, base=draft.base), draft, draft, **QUIET))
    form.follow(load.upload(shown(loaded_draft), [load, draft], draft, **QUIET))
    saved.change(None, saved, None, js=script("download_preset"), api_visibility="private")
    edition.change(lambda draft: described(draft.start, draft.base), draft, summary, **QUIET).then(
        lambda draft: described(draft.start, draft.base, timed=True), draft, summary, **QUIET, **_CPU
    )

    with open_form:

        @gr.render(inputs=[draft], triggers=[edition.change], show_progress="hidden")
        def controls_of(draft: Draft | None) -> None:
            if draft is None:
                return
            settings = settings_of(draft.start)
            controls = _controls(draft, settings)
            gr.on(
                [each.change for each in controls],
                partial(check, draft.base, settings),
                controls,
                [summary, problem, *controls],
                trigger_mode="always_last",
                **QUIET,
            ).then(partial(check_timed, draft.base, settings), controls, summary, **QUIET, **_CPU)
            save.click(shown(partial(as_yaml, draft.base, settings)), controls, saved, **QUIET)
            train.click(partial(started, start, draft.base, settings), controls, [run, problem], **QUIET)


def check(base: Preset, settings: list[Setting], *values: Any) -> list[Any]:
    """Return the summary line, an empty line where an older problem stood, and the line under each control."""
    problems: list[tuple[str, str]] = []
    try:
        summary = described(preset_from(base, settings, values), base)
    except ConfigError as error:
        summary, problems = {"text": str(error), "problem": True}, error.problems
    hints = hints_with_problems(base, settings, values, problems)
    return [summary, {"text": ""}, *(gr.update(info=hint) for hint in hints)]


def check_timed(base: Preset, settings: list[Setting], *values: Any) -> dict[str, Any]:
    """Return the summary line with the expected time, which takes about a second to measure."""
    try:
        return described(preset_from(base, settings, values), base, timed=True)
    except ConfigError as error:
        return {"text": str(error), "problem": True}


def described(preset: Preset, base: Preset, *, timed: bool = False) -> dict[str, Any]:
    """Describe a preset in a line: what it does, its size, the time it will take, and what was changed."""
    parts = [preset.description.rstrip("."), f"{parameters_of(preset.model, build_task(preset.task)):,} parameters"]
    if timed:
        seconds = seconds_to_train(preset)
        parts.append(f"about {_in_words(seconds)} on this machine" if seconds else "too large to time here")
    else:
        parts.append("measuring how long it takes here …")
    changes = changes_in_words(preset, base)
    return {"text": " · ".join(parts + ([f"changed: {changes}"] if changes else []))}


def started(start: Callable[[Preset], str], base: Preset, settings: list[Setting], *values: Any) -> tuple[Any, dict]:
    """Start a run from the filled form; return its name and no problem, or no name and the problem."""
    try:
        return start(preset_from(base, settings, values)), {"text": ""}
    except LabError as error:
        return gr.skip(), {"text": str(error), "problem": True}


def as_yaml(base: Preset, settings: list[Setting], *values: Any) -> str:
    """Return the filled form as a preset file; a changed preset is no longer the one of its name."""
    preset = preset_from(base, settings, values)
    name = preset.name if preset == base else f"{preset.name[:40]}-changed"
    return preset_to_yaml(preset.model_copy(update={"name": name}))


def loaded_draft(data: bytes | None, draft: Draft) -> Draft:
    """Return a draft that opens with an uploaded preset; ConfigError if it is not a valid one."""
    if data is None:
        raise ConfigError([("preset", "no file was chosen")])
    return draft.next(read_preset(data, name="loaded"))


def _form_base(start: Preset) -> Preset:
    """Return what a form measures changes against: the preset it was made from, if that has the same settings."""
    base = base_of(start)
    return base if settings_of(base) == settings_of(start) else start


def _controls(draft: Draft, settings: list[Setting]) -> list:
    starts = [value_in(draft.start, setting) for setting in settings]
    hints = hints_with_problems(draft.base, settings, starts, [])
    controls = []
    for section in SECTIONS:
        with (
            gr.Accordion(SECTION_TITLES[section], open=False, elem_id=f"section-{section}"),
            gr.Row(elem_classes="grid"),
        ):
            controls += [
                control(setting, start, hint)
                for setting, start, hint in zip(settings, starts, hints, strict=True)
                if setting.key.startswith(f"{section}.")
            ]
    return controls


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
