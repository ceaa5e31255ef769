"""The preset form: a control for every setting, validated while typing, saved and loaded as YAML."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

from core.config import SECTIONS, ConfigError, Preset, preset_to_yaml, read_preset
from core.config.listing import describe_changes, shipped_preset, work
from core.models import parameters_of
from core.reports.formatting import duration_range
from core.server.access import VisitorRuns
from core.server.estimates import Answer
from core.storage.errors import LabError
from core.tasks import build_task
from core.training.memory import device_memory, training_memory
from ui.components.notice import notice, problem
from ui.components.preset_summary import OPENING, preset_summary
from ui.events import CPU, LATEST, QUIET
from ui.forms.preset_list import picker_value
from ui.forms.setting_controls import (
    Setting,
    all_settings,
    control,
    hint_of,
    hints_with_problems,
    preset_from,
    value_in,
)
from ui.serving.errors import show_errors

ASK_ABOVE_SECONDS = 600
WORK_TO_WAIT_FOR = 5e12  # several minutes on one core, see ``work``
_DOWNLOAD = Path(__file__).with_name("download_preset.js").read_text(encoding="utf-8")

# The changed form as YAML in the tab's storage, until a run is started: see ui/web/drafts.js
_KEPT = "attention-lab-draft-preset"
_KEEP = f"(text) => text ? sessionStorage.setItem('{_KEPT}', text) : sessionStorage.removeItem('{_KEPT}')"
_RESTORE = f"(run, kept) => [run, sessionStorage.getItem('{_KEPT}') ?? '']"
LONGEST_WAIT = 30.0  # seconds for the estimate of a long training that is to start; it may have to wait for others
SUMMARY_WAIT = 2.0  # the same for the summary, whose script asks again while it is pending


@dataclass(frozen=True)
class Draft:
    """The preset that a form is opened with.

    Attributes:
        base: the preset that changes are reported against.
        start: the form's initial values.
        edition: number of the draft; a new number reopens the form, even with the same values.
        picked: the choice in the list of presets that opened it, or ""; the list may show a later choice by now.
        is_first: whether a page opens with it whose visitor has changed nothing.
    """

    base: Preset
    start: Preset
    edition: int = 0
    picked: str = ""
    is_first: bool = False

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
    folds: list[gr.Accordion]
    summary: gr.HTML
    problem: gr.HTML
    train: gr.Button
    picker: gr.HTML
    kept: gr.Textbox
    runs: VisitorRuns

    @property
    def inputs(self) -> list:
        """The inputs of a handler that reads the form: see ``preset_in``."""
        return [self.draft, self.edition, *self.controls]

    def open_first(self, listen: Callable[..., Dependency], function: Callable[..., Draft], run: gr.State) -> None:
        """Open the form of a new page with the draft that ``function`` returns for the run and a kept preset."""
        self._open(partial(listen, js=_RESTORE), function, [run, self.kept])

    def open_on(self, listen: Callable[..., Dependency], function: Callable[..., Draft | None], inputs: list) -> None:
        """Open the form with the draft that ``function`` returns after an event, or show why it failed.

        None leaves the form unchanged.
        """
        self.keep_after(self._open(listen, function, inputs))

    def keep_after(self, event: Dependency) -> None:
        """Keep the form for a reload of the page."""
        event.then(partial(kept_yaml, self.settings), self.inputs, self.kept, **LATEST, **QUIET).then(
            None, self.kept, None, js=_KEEP, api_visibility="private"
        )

    def _open(
        self, listen: Callable[..., Dependency], function: Callable[..., Draft | None], inputs: list
    ) -> Dependency:
        outputs = [self.problem, self.summary, self.train, self.picker]
        outputs += [self.draft, self.edition, *self.folds, *self.controls]

        def opened(*values: Any) -> list[Any]:
            draft: Draft | None = None
            try:
                draft = function(*values)
                if draft is None:
                    return [gr.skip()] * len(outputs)
                summary = described(self.runs, draft.start, draft.base)
            except LabError as error:
                shown = _not_opened(draft) if draft and draft.picked else [gr.skip()] * 3
                return [problem(error), *shown, *[gr.skip()] * (len(outputs) - 4)]
            enabled = gr.update(interactive=True)
            updates = [_opened_control(setting, draft) for setting in self.settings]
            listed = picker_value(draft.base, draft.picked)
            return [{"text": ""}, summary, enabled, listed, draft, draft.edition, *fold_labels(draft.start), *updates]

        return listen(opened, inputs, outputs, **LATEST, **QUIET)


def build(first: Preset, picker: gr.HTML, runs: VisitorRuns, run: gr.State, bar: gr.HTML) -> Form:
    """Build the form with its buttons.

    Args:
        first: the preset shown until the page has loaded.
        picker: the preset picker, which shows the preset that the form is open with.
        runs: start the run, and provide the limits that the form is validated against.
        run: receives the name of the started run.
        bar: the run bar, which shows the started run immediately.
    """
    settings = all_settings()
    controls: list[Component] = []
    folds: list[gr.Accordion] = []
    for section in SECTIONS:
        with (
            gr.Accordion(section.capitalize(), open=False, elem_id=f"section-{section}", elem_classes="fold") as fold,
            gr.Row(elem_classes="grid"),
        ):
            controls += [
                control(setting, visible=setting.applies_to(first))
                for setting in settings
                if setting.section == section
            ]
        folds.append(fold)
    small: dict[str, Any] = {"size": "sm", "min_width": 60}
    with gr.Row(elem_classes="actions", elem_id="preset-tools"):
        reset = gr.Button("Reset", elem_id="reset", **small)
        save = gr.Button("Save", elem_id="save-preset", **small)
        load = gr.UploadButton("Load", file_types=[".yaml", ".yml"], type="binary", elem_id="load-preset", **small)
    with gr.Column(elem_id="rail-foot"):
        summary = preset_summary()
        train = gr.Button("Train", variant="primary", interactive=False, elem_id="train", min_width=100)
        with gr.Column(visible=False, elem_id="train-question") as question:
            asked = notice(elem_id="train-question-text")
            with gr.Row(elem_classes="actions"):
                yes = gr.Button("Train anyway", variant="primary", elem_id="train-anyway", **small)
                no = gr.Button("Cancel", elem_id="train-cancel", **small)
        message = notice(elem_id="train-problem")
    yaml = gr.Textbox(visible="hidden", elem_id="saved-preset")
    edition = gr.Number(visible="hidden", elem_id="edition")
    kept = gr.Textbox(visible="hidden", elem_id="kept-preset")
    form = Form(
        gr.State(Draft(first, first)), edition, settings, controls, folds, summary, message, train, picker, kept, runs
    )

    form.open_on(reset.click, lambda draft: draft.next(draft.base, base=draft.base), [form.draft])
    form.open_on(load.upload, loaded_draft, [load, form.draft])
    changed = gr.on(
        [each.input for each in controls],
        partial(check, runs, settings),
        form.inputs,
        [summary, message, *folds, *controls],
        **LATEST,
        **QUIET,
    )
    form.keep_after(changed)
    summary.due(partial(check_timed, runs, settings), form.inputs, summary, **LATEST, **QUIET, **CPU)
    picker.pick(None, picker, summary, js=OPENING, **QUIET)  # before the form answers
    started_outputs = [run, bar, summary, message, question, asked]
    train.click(partial(started, runs, settings, ask=True), form.inputs, started_outputs, **QUIET)
    yes.click(partial(started, runs, settings, ask=False), form.inputs, started_outputs, **QUIET)
    no.click(lambda: gr.update(visible=False), None, question, **QUIET)
    save.click(show_errors(partial(as_yaml, settings)), form.inputs, yaml, **QUIET).success(
        None, yaml, None, js=_DOWNLOAD, api_visibility="private"
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
    """Validate the form; return its summary, an empty error message, fold labels, and the hint under each control."""
    problems: list[tuple[str, str]] = []
    labels: list[Any] = [gr.skip()] * len(SECTIONS)
    try:
        preset = preset_in(settings, draft, edition, *values)
        runs.limits.check(preset, pairs=runs.pairs_of(preset))
        summary, labels = described(runs, preset, draft.base), fold_labels(preset)
    except ConfigError as error:
        summary, problems = problem(error), error.problems
    hints = hints_with_problems(draft.base, settings, values, problems)
    return [summary, {"text": ""}, *labels, *(gr.update(info=hint, elem_classes=_classes(hint)) for hint in hints)]


def _classes(hint: str) -> list[str]:
    return ["invalid"] if hint.startswith("✗") else []


def check_timed(runs: VisitorRuns, settings: list[Setting], draft: Draft, edition: float, *values: Any) -> Any:
    """Return the form's summary with the estimated training time; no update while that is not known."""
    try:
        preset = preset_in(settings, draft, edition, *values)
    except ConfigError:  # shown by ``check``, or the form is being opened
        return gr.skip()
    summary = timed(runs, preset, draft.base)
    return gr.skip() if summary is None else summary | {"answer": True}


def timed(runs: VisitorRuns, preset: Preset, base: Preset) -> dict[str, Any] | None:
    """Return a preset's summary with the estimated training time, or why it cannot be trained here.

    The time takes about a second to measure, longer while others wait for theirs; None if that is more than
    ``SUMMARY_WAIT``.
    """
    try:
        time = runs.wait_for_training_time(preset, seconds=SUMMARY_WAIT)
        return None if time == "pending" else described(runs, preset, base, time=time)
    except LabError as error:  # for instance, the visitor does not have the preset's pairs
        return problem(error) | {"preset": _key(preset)}


def described(runs: VisitorRuns, preset: Preset, base: Preset, *, time: Answer = "pending") -> dict[str, Any]:
    """Return a preset's summary: parameters, memory to train with a warning if that is too much, time, and changes.

    Args:
        time: estimated training time; None if it cannot be measured, for example because the model is too large.
    """
    task = build_task(preset.task, pairs=runs.pairs_of(preset))
    parts = [f"{parameters_of(preset.model, task):,} parameters"]
    if time == "pending":
        parts.append("estimating the training time …")
    else:
        parts.append(memory_text(training_memory(preset, runs.pairs_of(preset)).total, device_memory(runs.device)))
        parts.append(
            "too large to estimate the time"
            if time is None
            else f"{duration_range(time.low, time.high)} on this machine{_gpu(runs)}"
        )
    changes = describe_changes(preset, base)
    text = " · ".join(parts + ([f"changed: {changes}"] if changes else []))
    return {"text": text, "preset": _key(preset), "pending": time == "pending"}


def _key(preset: Preset) -> str:
    """Return a text that differs between presets."""
    return hashlib.sha256(preset.model_dump_json().encode()).hexdigest()[:16]


def _not_opened(draft: Draft) -> list[Any]:
    """Return summary, Train and the list where a picked preset could not be opened: Train must not train another."""
    return [{"unopened": True}, gr.update(interactive=False), picker_value(draft.base, draft.picked)]


def _gpu(runs: VisitorRuns) -> str:
    return "" if runs.device == "cpu" else f"'s GPU ({runs.device})"


def memory_text(needed: int, available: int) -> str:
    """Return the memory that training takes, with a warning if there is less."""
    warning = f" ⚠ there are {_size(available)}" if needed > available else ""
    return f"{_size(needed)} of memory{warning}"


def _size(size: int) -> str:
    """Return a number of bytes with its unit: "7 MB", "1.5 GB"."""
    return f"{size / 1e6:,.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def started(runs: VisitorRuns, settings: list[Setting], *inputs: Any, ask: bool) -> list[Any]:
    """Start a run from the form, or ask first if it takes long.

    Returns:
        The run's name, the value of the run bar, the form's summary, the message, whether the question is visible, and
        its text.
    """
    unchanged, hidden = [gr.skip(), gr.skip()], gr.update(visible=False)
    try:
        preset = preset_in(settings, *inputs)
        takes = _long_time(runs, preset) if ask else ""
        if takes:
            text = f"Training takes {takes} on this machine{_gpu(runs)}. It continues when you close the page."
            return [*unchanged, gr.skip(), {"text": ""}, gr.update(visible=True), {"text": text}]
        run = runs.start(preset)
        return [run, {"current": run, "started": True}, gr.skip(), {"text": ""}, hidden, {"text": ""}]
    except ConfigError as error:  # shown where the form shows it while a setting is edited
        return [*unchanged, problem(error), {"text": ""}, hidden, {"text": ""}]
    except LabError as error:
        return [*unchanged, gr.skip(), problem(error), hidden, {"text": ""}]


def _long_time(runs: VisitorRuns, preset: Preset) -> str:
    """Return how long training takes if that is longer than ``ASK_ABOVE_SECONDS``, else "".

    A preset whose time is not known yet is waited for only if it is much work.
    """
    patience = LONGEST_WAIT if work(preset) > WORK_TO_WAIT_FOR else 0
    time = runs.wait_for_training_time(preset, seconds=patience)
    if time is None or time == "pending":
        return "too long to estimate" if patience else ""
    return duration_range(time.low, time.high) if time.high > ASK_ABOVE_SECONDS else ""


def fold_labels(preset: Preset) -> list[Any]:
    """Return the updates of the labels of the sections, which say what is in them."""
    summaries = {"task": preset.task.summary, "model": preset.model.summary, "training": preset.training.summary}
    return [gr.update(label=f"{section.capitalize()}: {summaries[section]}") for section in SECTIONS]


def as_yaml(settings: list[Setting], draft: Draft, *inputs: Any) -> str:
    """Return the form as a preset file; a changed preset gets a name of its own."""
    preset = preset_in(settings, draft, *inputs)
    name = preset.name if preset == draft.base else f"{preset.name[:40]}-changed"
    return preset_to_yaml(preset.model_copy(update={"name": name}))


def kept_yaml(settings: list[Setting], draft: Draft, *inputs: Any) -> Any:
    """Return the form as a preset file to keep, "" if it is as the page opened it; a skip while a value is invalid."""
    try:
        preset = preset_in(settings, draft, *inputs)
    except ConfigError:
        return gr.skip()
    return "" if draft.is_first and preset == draft.start else preset_to_yaml(preset)


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
