"""The sweep component: a form that plans, starts and continues sweeps, and what they have found."""

import re
import time
from functools import partial
from typing import Any

import gradio as gr
from pydantic import Field

from core.config import ConfigError, Preset
from core.reports.formatting import duration_range
from core.runs.estimate import TrainingTime
from core.runs.sweeps.estimate import SweepTime, estimate_sweep_time
from core.runs.sweeps.folder import SweepError, SweepFile, check_extension
from core.runs.sweeps.processes import usable_cores
from core.runs.sweeps.trials import examined_trials, extreme_trials
from core.server.access import VisitorRuns
from core.storage.errors import UnavailableError
from ui.components.component import Request, component, validated
from ui.components.sweep.results import SweepRequest, TrialRequest, result_functions
from ui.forms.preset_form import ASK_ABOVE_SECONDS, LONGEST_WAIT
from ui.forms.sweep_draft import (
    MAX_YAML,
    METRICS,
    BaseDraft,
    SweepDraft,
    as_yaml,
    draft_of,
    num_jobs,
    opened,
    sweep_file,
)

_FIELD = re.compile(r"(axes\.[a-z_.]*[a-z_]|trials|seeds|set\.[a-z_.]*[a-z_]|goal\.[a-z]+)\b")
MAX_CHECKED = 2_000  # trials of a grid that are checked one by one while the form is edited; the start checks all


class DraftRequest(Request):
    """A request about the form."""

    draft: SweepDraft


class StartRequest(DraftRequest):
    """A request to start a sweep; ``sure`` if the visitor has answered the question whether to."""

    sure: bool = False


class ContinueRequest(SweepRequest):
    """A request to continue a sweep that was begun."""

    jobs: int = Field(ge=1, le=10_000)


class OpenRequest(Request):
    """A request to open a sweep's file, which may name the preset of the form."""

    text: str = Field(max_length=MAX_YAML)
    base: BaseDraft | None = None


def sweep_view(runs: VisitorRuns) -> gr.HTML:
    """Build the component.

    Value: ``{"off": message or "", "base": see ``base_data``, or None, "problem": why there is no base}``. Events:
    ``.base(fn)`` when it needs the settings of the Train tab, ``.pick(fn)`` with ``event.run``.
    """
    functions = {
        "plan": validated(DraftRequest, partial(plan, runs)),
        "estimate": validated(DraftRequest, partial(estimate, runs)),
        "start": validated(StartRequest, partial(start, runs)),
        "resume": validated(ContinueRequest, partial(resume, runs)),
        "stop": validated(SweepRequest, partial(stop, runs)),
        "stop_trial": validated(TrialRequest, partial(stop_trial, runs)),
        "yaml": validated(DraftRequest, yaml_of),
        "open_file": validated(OpenRequest, partial(open_file, runs)),
        "edit": validated(SweepRequest, partial(edit, runs)),
        **result_functions(runs),
    }
    value = {"off": off_message(runs), "base": None, "problem": ""}
    return component(
        "sweep",
        elem_id="sweep",
        events=["base", "pick"],
        value=value,
        server_functions=functions,
        metrics=list(METRICS),
        cores=usable_cores(),
    )


def off_message(runs: VisitorRuns) -> str:
    """Return why there are no sweeps here, or ""."""
    try:
        runs.sweeps.active()
    except UnavailableError as error:
        return str(error)
    return ""


def plan(runs: VisitorRuns, request: DraftRequest) -> dict[str, Any]:
    """Validate the form: its size, or the problem of each field. Nothing is measured or written."""
    try:
        file = sweep_file(request.draft)
        num_jobs(request.draft)
        sweep = file.sweep
        if sweep.search == "grid" and sweep.num_trials <= MAX_CHECKED:
            examined_trials(sweep, file.base)
        else:
            extreme_trials(sweep, file.base)
    except ConfigError as error:
        return {"problems": placed(error)}
    exists = sweep.name in runs.sweeps.names()
    return {"problems": [], "trials": sweep.num_trials, "seeds": sweep.num_seeds, "exists": exists}


def placed(error: ConfigError) -> list[tuple[str, str]]:
    """Return the problems, each with the field that its message begins with if it is about the whole sweep."""
    found = []
    for field, message in error.problems:
        begins = _FIELD.match(message)
        found.append((begins[0] if field == "sweep" and begins else field, message))
    return found


def estimate(runs: VisitorRuns, request: DraftRequest) -> dict[str, Any]:
    """Estimate the whole time of the form's sweep, after checking that it can succeed here."""
    try:
        file, jobs = sweep_file(request.draft), num_jobs(request.draft)
        runs.sweeps.check(file, jobs=jobs, pairs=runs.pairs_of(file.base))
        return {"text": _time_text(file, *_estimated(runs, file, jobs))}
    except ConfigError as error:
        return {"problems": placed(error)}


def start(runs: VisitorRuns, request: StartRequest) -> dict[str, Any]:
    """Start the form's sweep, or continue or extend the one of its name; ask first if that takes long.

    Returns:
        ``{"sweep": name}``, ``{"question": text}`` or ``{"problems": …}``.
    """
    try:
        file, jobs = sweep_file(request.draft), num_jobs(request.draft)
        pairs = runs.pairs_of(file.base)
        runs.sweeps.check(file, jobs=jobs, pairs=pairs)
        extends = _extends(runs, file)
        time, left = _estimated(runs, file, jobs)
        question = [f"It was begun with fewer runs, and is extended to {file.sweep.num_runs:,}."] if extends else []
        if time is None or time.high > ASK_ABOVE_SECONDS:
            question.append(f"{_time_text(file, time, left)}. It goes on when you close this tab of the browser.")
        if question and not request.sure:
            return {"question": " ".join(question)}
        seconds = None if time is None else (time.low + time.high) / 2
        runs.sweeps.start(file, jobs=jobs, pairs=pairs, extend=extends, estimate=seconds)
    except ConfigError as error:
        return {"problems": placed(error)}
    return {"sweep": file.sweep.name}


def resume(runs: VisitorRuns, request: ContinueRequest) -> dict[str, Any]:
    """Continue a sweep that was begun."""
    file = runs.sweeps.read(request.sweep)
    runs.sweeps.start(file, jobs=request.jobs, pairs=runs.pairs_of(file.base))
    return {"sweep": request.sweep}


def stop(runs: VisitorRuns, request: SweepRequest) -> dict[str, Any]:
    """Stop a sweep; nothing happens if it has ended meanwhile."""
    if runs.sweeps.active() == request.sweep:
        runs.sweeps.stop()
    return {"sweep": request.sweep}


def stop_trial(runs: VisitorRuns, request: TrialRequest) -> dict[str, Any]:
    """Stop a trial of a sweep that is being trained."""
    runs.sweeps.stop_trial(request.sweep, request.trial)
    return {"sweep": request.sweep}


def yaml_of(request: DraftRequest) -> dict[str, Any]:
    """Return the form as a file for the command line."""
    try:
        file = sweep_file(request.draft)
    except ConfigError as error:
        return {"problems": placed(error)}
    return {"yaml": as_yaml(file), "name": f"{file.sweep.name}.yaml"}


def open_file(runs: VisitorRuns, request: OpenRequest) -> dict[str, Any]:
    """Return what the form shows of a file."""
    base = request.base or BaseDraft(preset="", document="", set={})
    return {"draft": draft_of(opened(request.text, base))}


def edit(runs: VisitorRuns, request: SweepRequest) -> dict[str, Any]:
    """Return what the form shows of a sweep that was begun."""
    return {"draft": draft_of(runs.sweeps.read(request.sweep))}


def _extends(runs: VisitorRuns, file: SweepFile) -> bool:
    """Return whether a sweep of this name was begun with fewer runs; ConfigError if it was begun with others."""
    try:
        begun = runs.sweeps.read(file.sweep.name)
    except SweepError:  # there is none
        return False
    check_extension(begun, file, extend=True)
    return file.sweep.num_runs > begun.sweep.num_runs


def _estimated(runs: VisitorRuns, file: SweepFile, jobs: int) -> tuple[SweepTime | None, int]:
    """Return the estimated time of the runs that are not done, and how many those are."""
    deadline = time.monotonic() + LONGEST_WAIT

    def time_of(preset: Preset) -> TrainingTime | None:
        answer = runs.wait_for_training_time(preset, seconds=max(0.0, deadline - time.monotonic()))
        return None if answer == "pending" else answer

    done = 0
    if file.sweep.name in runs.sweeps.names():
        begun = runs.sweeps.table(file.sweep.name)
        done = begun.file.sweep.num_runs - begun.runs_left
    left = max(0, file.sweep.num_runs - done)
    trials = examined_trials(file.sweep, file.base)
    return estimate_sweep_time(file.sweep, trials, runs=left, jobs=jobs, time_of=time_of), left


def _time_text(file: SweepFile, time: SweepTime | None, left: int) -> str:
    sweep = file.sweep
    size = sweep.size
    if left < sweep.num_runs:
        size += f", {left:,} runs to go"
    if not left:
        return f"{size}: nothing is left to train"
    if time is None:
        return f"{size}: too long to estimate the time"
    at_a_time = "one run at a time" if time.jobs == 1 else f"{time.jobs} runs at a time"
    if sweep.goal.minutes is not None:
        text = f"{size}: at most {duration_range(time.high, time.high)}, {at_a_time}"
    else:
        text = f"{size}: {duration_range(time.low, time.high)} on this machine, {at_a_time}"
    return f"{text}; less with pruning, by as much as it stops early" if sweep.pruning != "none" else text
