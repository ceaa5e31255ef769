"""Which values of a link to the page name what is not there, for its visitor and for a teacher who sends it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from core.config import preset_names
from core.config.counting import counted
from core.models.seq2seq import BLOCKS, Head
from core.runs import Run
from core.runs.names import readable_name
from core.server.access import VisitorRuns
from core.storage.error_messages import short_repr
from core.storage.errors import InputError, LabError
from core.teaching.attention_lessons import attention_lessons
from core.teaching.lessons import lesson_names
from core.teaching.symptoms import symptoms
from core.text.validation import quote
from ui.forms import strategy_form
from ui.interventions import from_query, heads_of_run
from ui.run_info import can_open

TABS = ("train", "decode", "attention", "report", "compare", "sweep", "lessons")


def problems_of_link(runs: VisitorRuns, query: dict[str, str], run: str | None) -> dict[str, str]:
    """Return what is wrong with values in the page's address, by the parameter; those of the named run are not checked.

    Args:
        query: the address's parameters.
        run: the run that it opens, whose heads and steps are compared; None if it cannot be opened.
    """
    lessons = ["symptoms", *(each.name for each in attention_lessons()), *lesson_names()]
    problems = {
        name: f"{name}={short_repr(query[name])} is not one of {these}"
        for name, known, these in (
            ("tab", TABS, "the tabs"),
            ("preset", preset_names(), "the presets"),
            ("lesson", lessons, "the lessons"),
            ("symptom", [each.id for each in symptoms()], "the symptoms"),
            ("block", BLOCKS, ", ".join(BLOCKS)),
        )
        if query.get(name) and query[name] not in known
    }
    checks: dict[str, Callable[[], Any]] = {"strategy": lambda: strategy_form.parse_query(query)}
    checks |= {name: partial(_check_number, query, name) for name in ("row", "column")}
    checks["compare"] = lambda: _check_compared(runs, query)
    if run is not None:
        checks |= _checks_of_run(runs, query, run)
    for name, check in checks.items():
        try:
            check()
        except LabError as error:
            problems.setdefault(name, str(error))
    return problems


def _checks_of_run(runs: VisitorRuns, query: dict[str, str], run: str) -> dict[str, Callable[[], Any]]:
    """Return the checks of what a link names of a run; each raises LabError."""
    spec = from_query({"ablate": query.get("ablate", ""), "pattern": query.get("pattern", "")}, run)
    return {
        "ablate": lambda: spec and spec.validated(heads_of_run(runs[run])),
        "layer": lambda: _check_head(query, heads_of_run(runs[run])),
        "step": lambda: _check_step(query.get("step", ""), runs[run].progress.steps),
        "fixed_input": lambda: _check_fixed_input(query, runs[run]),
    }


def compared_runs(query: dict[str, str]) -> list[str]:
    """Return the names of the runs that a link compares."""
    return [name for name in dict.fromkeys(query.get("compare", "")[:1_000].split(",")) if name]


def _check_compared(runs: VisitorRuns, query: dict[str, str]) -> None:
    missing = [quote(readable_name(each)) for each in compared_runs(query) if not can_open(runs, each)]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"compare={missing[0]}{others}: there is no such run here, or it is not shared with you")


def _check_head(query: dict[str, str], heads: Sequence[Head]) -> None:
    """Raise InputError if a link's layer or head is not in a model; a link without a block opens that of the source."""
    given = {name: query[name] for name in ("block", "layer", "head") if query.get(name)}
    block = given.get("block")
    if not given or not heads or (block and block not in BLOCKS):
        return
    fitting = [each for each in heads if block in (None, each.block)]
    for each in fitting:
        if all(str(getattr(each, name)) == value for name, value in given.items()):
            return
    named = ", ".join(f"{name}={value:.20}" for name, value in given.items())
    last = max(fitting, key=lambda each: (each.layer, each.head), default=None)
    has = f"{counted(last.layer, 'layer')} of {counted(last.head, 'head')}" if last else "no heads"
    where = f" in block {block}" if block else ""
    raise InputError(f"{named} is not in this model, which has {has}{where}")


def _check_number(query: dict[str, str], name: str) -> int:
    """Return a number of a link that counts from 1, or 0 if it is not given; InputError if it is none."""
    text = query.get(name, "")
    if text and not (text.isdecimal() and int(text[:9])):
        raise InputError(f"{name}={short_repr(text, 20)} is not a whole number from 1")
    return int(text[:9] or 0)


def _check_fixed_input(query: dict[str, str], run: Run) -> None:
    number, snapshots = _check_number(query, "fixed_input"), run.replay.snapshots()
    if snapshots and number > len(snapshots[-1].inputs):
        has = counted(len(snapshots[-1].inputs), "fixed input")
        raise InputError(f"fixed_input={number} is not in the replay of this run, which has {has}")


def _check_step(step: str, steps: int | None) -> None:
    if step and steps is not None and not (step.isdecimal() and int(step[:9]) <= steps):
        raise InputError(f"step={short_repr(step, 20)} is not a training step of this run, which has {steps:,}")
