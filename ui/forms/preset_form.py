"""The preset form: a field for every setting, validated while typing, saved and loaded as YAML."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency
from pydantic import BaseModel, ConfigDict, ValidationError

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
from ui.components.run_bar import current_run
from ui.components.setting_fields import SubmittedFields, setting_fields
from ui.events import CHECK, LATEST, QUIET
from ui.forms.preset_list import picker_value
from ui.forms.setting_controls import hint_of, preset_from, problem_of, settings_of, value_in
from ui.serving.errors import show_errors
from ui.updates import Updates, by_name

ASK_ABOVE_SECONDS = 600
WORK_TO_WAIT_FOR = 5e12  # several minutes on one core, see ``work``
_DOWNLOAD = Path(__file__).with_name("download_preset.js").read_text(encoding="utf-8")
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
        start_from: the run whose weights are chosen to begin with, "" for random ones.
    """

    base: Preset
    start: Preset
    edition: int = 0
    picked: str = ""
    is_first: bool = False
    start_from: str = ""

    def next(self, start: Preset, *, base: Preset | None = None, start_from: str = "") -> "Draft":
        """Return the next draft, which opens with ``start``."""
        return Draft(base or form_base(start), start, self.edition + 1, start_from=start_from)


class Kept(BaseModel):
    """A form that the tab keeps for a reload of the page.

    Attributes:
        preset: the form's values, as a preset file.
        start_from: the run whose weights are chosen to begin with, "" for random ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    preset: str
    start_from: str = ""


@dataclass(frozen=True)
class Form:
    """The form of one session.

    The draft is on the server, the values are in the browser. Both hold the draft's edition, so that a button pressed
    while a new draft is on its way is detected.
    """

    draft: gr.State
    fields: gr.HTML
    summary: gr.HTML
    problem: gr.HTML
    train: gr.Button
    picker: gr.HTML
    runs: VisitorRuns

    @property
    def inputs(self) -> list:
        """The inputs of a handler that reads the form: see ``preset_in``."""
        return [self.draft, self.fields]

    @property
    def outputs(self) -> dict[str, Component]:
        """The components that show a draft, by name."""
        return {
            "message": self.problem,
            "summary": self.summary,
            "train": self.train,
            "picker": self.picker,
            "draft": self.draft,
            "fields": self.fields,
        }

    def open_on(self, listen: Callable[..., Dependency], function: Callable[..., Draft | None], inputs: list) -> None:
        """Open the form with the draft that ``function`` returns after an event, or show why it failed.

        None leaves the form unchanged.
        """
        handler = by_name(lambda *values: self.opened(partial(function, *values)), self.outputs)
        listen(handler, inputs, list(self.outputs.values()), **LATEST, **QUIET)

    def opened(self, function: Callable[[], Draft | None]) -> Updates:
        """Return the updates of ``outputs`` that open the form with a draft, or show why there is none."""
        draft: Draft | None = None
        try:
            draft = function()
            if draft is None:
                return {}
            summary = described(self.runs, draft.start, draft.base, start_from=draft.start_from)
        except LabError as error:
            return {"message": problem(error)} | (_not_opened(draft) if draft and draft.picked else {})
        return {
            "message": {"text": ""},
            "summary": summary,
            "train": gr.update(interactive=True),
            "picker": picker_value(draft.base, draft.picked, edition=draft.edition),
            "draft": draft,
            "fields": opened_fields(draft)
            | {"kept": _kept(draft, draft.start, draft.start_from)}
            | _listed(self.runs, draft.start, start_from=draft.start_from),
        }


def build(first: Preset, picker: gr.HTML, runs: VisitorRuns, run: gr.State, bar: gr.HTML) -> Form:
    """Build the form with its buttons.

    Args:
        first: the preset shown until the page has loaded.
        picker: the preset picker, which shows the preset that the form is open with.
        runs: start the run, and provide the limits that the form is validated against.
        run: receives the name of the started run.
        bar: the run bar, which shows the started run immediately.
    """
    shown = Draft(first, first)
    fields = setting_fields(opened_fields(shown))
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
    form = Form(gr.State(shown), fields, summary, message, train, picker, runs)

    form.open_on(reset.click, lambda draft: draft.next(draft.base, base=draft.base), [form.draft])
    form.open_on(load.upload, loaded_draft, [load, form.draft])
    checked = {"summary": summary, "message": message, "fields": fields}
    fields.input(by_name(partial(check, runs), checked), form.inputs, list(checked.values()), **LATEST, **QUIET)
    summary.due(partial(check_timed, runs), form.inputs, summary, **LATEST, **QUIET, **CHECK)
    picker.pick(None, picker, summary, js=OPENING, **QUIET)  # before the form answers
    outputs = {"run": run, "bar": bar, "summary": summary, "message": message, "question": question, "asked": asked}
    for pressed, ask in ((train, True), (yes, False)):
        start = by_name(partial(started, runs, ask=ask), outputs)
        pressed.click(start, form.inputs, list(outputs.values()), **QUIET)
    listed = by_name(partial(listed_starts, runs), {"fields": fields})
    for changes in (bar.status, bar.gone):  # a run can be started from once it has weights, and until it is deleted
        changes(listed, form.inputs, [fields], **LATEST, **QUIET)
    no.click(lambda: gr.update(visible=False), None, question, **QUIET)
    save.click(show_errors(as_yaml), form.inputs, yaml, **QUIET).success(
        None, yaml, None, js=_DOWNLOAD, api_visibility="private"
    )
    return form


def preset_in(draft: Draft, submitted: Any) -> Preset:
    """Return the preset that a form describes.

    Args:
        submitted: the value of the fields, as a browser sent it.

    Raises:
        ConfigError: a value is invalid, or the form was being reopened while it was read.
    """
    fields = _submitted(submitted)
    if fields.edition != draft.edition:
        raise ConfigError([("preset", "the form was still loading; try again")])
    return preset_from(draft.base, fields.values)


def start_from_in(submitted: Any) -> str:
    """Return the name of the run that a form chooses to start from, as a browser sent it; "" for random weights."""
    return _submitted(submitted).start_from


def kept_in(submitted: Any) -> Kept | None:
    """Return the form that a reloaded page has kept, if there is one that can be read; see ``WITH_KEPT``."""
    kept = _submitted(submitted).kept
    try:
        return Kept.model_validate_json(kept) if kept else None
    except ValidationError:  # of another version
        return None


def _submitted(value: Any) -> SubmittedFields:
    try:
        return SubmittedFields.model_validate(value)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))[:60]
        raise ConfigError([(field or "preset", f"{field or 'preset'} is not a value of the form")]) from error


def opened_fields(draft: Draft) -> dict[str, Any]:
    """Return the value of the fields that opens them with a draft."""
    values = {setting.key: value_in(draft.start, setting) for setting in settings_of(draft.start)}
    return fields_value(draft, values, draft.start) | {"values": values, "start_from": draft.start_from}


def _listed(runs: VisitorRuns, preset: Preset, *, search: str = "", start_from: str = "") -> dict[str, Any]:
    """Return the runs to start from, and when they were looked up: the answer to an earlier event may come later."""
    looked_up = time_ns()
    return {"starts": asdict(runs.starting_points(preset, search, keep=start_from)), "listed": looked_up}


def fields_value(
    draft: Draft, values: Mapping[str, Any], preset: Preset | None, problems: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return the value of the fields with the label of each section, and the hint or the error of each field.

    Args:
        preset: what the values describe; None while they are invalid, which leaves the labels as they are.
    """
    sections: dict[str, dict[str, Any]] = {
        name: {"name": name, "label": _label(preset, name) if preset else None, "fields": []} for name in SECTIONS
    }
    for setting in settings_of(draft.base):
        invalid = problem_of(setting, problems)
        hint = invalid or hint_of(setting, values.get(setting.key), value_in(draft.base, setting))
        sections[setting.section]["fields"].append(setting.as_field() | {"hint": hint, "invalid": bool(invalid)})
    return {"edition": draft.edition, "sections": list(sections.values())}


def _label(preset: Preset, section: str) -> str:
    """Return the label of a section, which says what is set in it."""
    summaries = {"task": preset.task.summary, "model": preset.model.summary, "training": preset.training.summary}
    return f"{section.capitalize()}: {summaries[section]}"


def listed_starts(runs: VisitorRuns, draft: Draft, submitted: Any) -> Updates:
    """Return the update of the fields with the runs to start from; none while the form is invalid or being opened."""
    try:
        preset, fields = preset_in(draft, submitted), _submitted(submitted)
    except ConfigError:
        return {}
    listed = _listed(runs, preset, search=fields.start_search, start_from=fields.start_from)
    return {"fields": {"edition": draft.edition} | listed}


def check(runs: VisitorRuns, draft: Draft, submitted: Any) -> Updates:
    """Validate the form; return the updates of its summary, of the message, and of the fields' hints and errors."""
    form = _submitted(submitted)
    values, start_from = form.values, form.start_from
    try:
        preset = preset_in(draft, submitted)
        listed = _listed(runs, preset, search=form.start_search, start_from=start_from)
    except ConfigError as error:
        fields = fields_value(draft, values, None, error.problems)
        return {"summary": problem(error), "message": {"text": ""}, "fields": fields}
    try:
        new = runs.new_run(preset, start_from)
        runs.limits.check(new.preset, pairs=new.pairs)
        summary = described(runs, preset, draft.base, start_from=start_from)
    except LabError as error:
        problems = error.problems if isinstance(error, ConfigError) else ()
        fields = fields_value(draft, values, None, problems) | listed
        return {"summary": problem(error), "message": {"text": ""}, "fields": fields}
    fields = fields_value(draft, values, preset) | {"kept": _kept(draft, preset, start_from)} | listed
    return {"summary": summary, "message": {"text": ""}, "fields": fields}


def check_timed(runs: VisitorRuns, draft: Draft, submitted: Any) -> Any:
    """Return the form's summary with the estimated training time; no update while that is not known."""
    try:
        preset, start_from = preset_in(draft, submitted), start_from_in(submitted)
    except ConfigError:  # shown by ``check``, or the form is being opened
        return gr.skip()
    summary = timed(runs, preset, draft.base, start_from=start_from)
    return gr.skip() if summary is None else summary | {"answer": True}


def timed(runs: VisitorRuns, preset: Preset, base: Preset, *, start_from: str = "") -> dict[str, Any] | None:
    """Return a preset's summary with the estimated training time, or why it cannot be trained here.

    The time takes about a second to measure, longer while others wait for theirs; None if that is more than
    ``SUMMARY_WAIT``.
    """
    try:
        time = runs.wait_for_training_time(preset, start_from=start_from, seconds=SUMMARY_WAIT)
        return None if time == "pending" else described(runs, preset, base, start_from=start_from, time=time)
    except LabError as error:  # for instance, the visitor does not have the preset's pairs
        return problem(error) | {"preset": _key(preset) + start_from}


def described(
    runs: VisitorRuns, preset: Preset, base: Preset, *, start_from: str = "", time: Answer = "pending"
) -> dict[str, Any]:
    """Return a preset's summary: parameters, memory to train with a warning if that is too much, time, and changes.

    Args:
        start_from: the run whose weights it begins with, "" for random ones.
        time: estimated training time; None if it cannot be measured, for example because the model is too large.
    """
    new = runs.new_run(preset, start_from)
    parts = [f"{parameters_of(new.preset.model, build_task(new.preset.task, pairs=new.pairs)):,} parameters"]
    if time == "pending":
        parts.append("estimating the training time …")
    else:
        parts.append(memory_text(training_memory(new.preset, new.pairs).total, device_memory(runs.device)))
        parts.append(
            "too large to estimate the time"
            if time is None
            else f"{duration_range(time.low, time.high)} on this machine{_gpu(runs)}"
        )
    if start_from:
        parts.append(f"begins with the weights of {runs[start_from].title}")
    changes = describe_changes(preset, base)
    text = " · ".join(parts + ([f"changed: {changes}"] if changes else []))
    return {"text": text, "preset": _key(preset) + start_from, "pending": time == "pending"}


def _key(preset: Preset) -> str:
    """Return a text that differs between presets."""
    return hashlib.sha256(preset.model_dump_json().encode()).hexdigest()[:16]


def _not_opened(draft: Draft) -> Updates:
    """Return the updates where a picked preset could not be opened: Train must not train another."""
    picker = picker_value(draft.base, draft.picked, edition=draft.edition)
    return {"summary": {"unopened": True}, "train": gr.update(interactive=False), "picker": picker}


def _gpu(runs: VisitorRuns) -> str:
    return "" if runs.device == "cpu" else f"'s GPU ({runs.device})"


def memory_text(needed: int, available: int) -> str:
    """Return the memory that training takes, with a warning if there is less."""
    warning = f" ⚠ there are {_size(available)}" if needed > available else ""
    return f"{_size(needed)} of memory{warning}"


def _size(size: int) -> str:
    """Return a number of bytes with its unit: "7 MB", "1.5 GB"."""
    return f"{size / 1e6:,.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def started(runs: VisitorRuns, draft: Draft, submitted: Any, *, ask: bool) -> Updates:
    """Start a run from the form, or ask first if it takes long."""
    quiet: Updates = {"message": {"text": ""}, "question": gr.update(visible=False), "asked": {"text": ""}}
    try:
        preset, start_from = preset_in(draft, submitted), start_from_in(submitted)
        takes = _long_time(runs, preset, start_from) if ask else ""
        if takes:
            text = f"Training takes {takes} on this machine{_gpu(runs)}. It continues when you close the page."
            return quiet | {"question": gr.update(visible=True), "asked": {"text": text}}
        run = runs.start(preset, start_from=start_from)
        return quiet | current_run(run, started=True)
    except ConfigError as error:  # shown where the form shows it while a setting is edited
        return quiet | {"summary": problem(error)}
    except LabError as error:
        return quiet | {"message": problem(error)}


def _long_time(runs: VisitorRuns, preset: Preset, start_from: str) -> str:
    """Return how long training takes if that is longer than ``ASK_ABOVE_SECONDS``, else "".

    A preset whose time is not known yet is waited for only if it is much work.
    """
    patience = LONGEST_WAIT if work(preset) > WORK_TO_WAIT_FOR else 0
    time = runs.wait_for_training_time(preset, start_from=start_from, seconds=patience)
    if time is None or time == "pending":
        return "too long to estimate" if patience else ""
    return duration_range(time.low, time.high) if time.high > ASK_ABOVE_SECONDS else ""


def as_yaml(draft: Draft, submitted: Any) -> str:
    """Return the form as a preset file; a changed preset gets a name of its own."""
    preset = preset_in(draft, submitted)
    name = preset.name if preset == draft.base else f"{preset.name[:40]}-changed"
    return preset_to_yaml(preset.model_copy(update={"name": name}))


def _kept(draft: Draft, preset: Preset, start_from: str) -> str:
    """Return what to keep for a reload of the page, "" if the form is as the page opened it; see ``Kept``."""
    if draft.is_first and preset == draft.start and not start_from:
        return ""
    return Kept(preset=preset_to_yaml(preset), start_from=start_from).model_dump_json()


def loaded_draft(data: bytes | None, draft: Draft) -> Draft:
    """Return a draft that opens with an uploaded preset; ConfigError if it is invalid."""
    if data is None:
        raise ConfigError([("preset", "no file selected")])
    return draft.next(read_preset(data, name="loaded"))


def form_base(start: Preset) -> Preset:
    """Return the preset that changes are reported against: the shipped preset, if it is of the same families."""
    base = shipped_preset(start)
    same_families = all(setting.applies_to(base) for setting in settings_of(start))
    return base if same_families else start
