"""What a sweep has found, in small answers: its progress, some of its trials to draw, rows of its table, curves."""

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from pydantic import Field

from core.reports.comparison import mean_curve
from core.runs import RunError
from core.runs.sweeps.effects import heat_map, importance
from core.runs.sweeps.folder import SweepError
from core.runs.sweeps.sweep import Range, Value
from core.runs.sweeps.table import FORMATS, Row, SweepTable, table_cells
from core.runs.sweeps.trials import describe, is_integer_key, value_text
from core.server.access import VisitorRuns
from core.server.sweeps import SweepProgress
from ui.components.component import Request, ServerFunction, validated
from ui.json_numbers import json_number

MAX_POINTS = 400  # trials that are drawn; more lines cannot be told apart
BEST_POINTS = 100  # of them, the best ones; the others are drawn evenly from the rest
ROWS = 50  # of the table in one answer
MAX_CURVES = 6
MAX_TICKS = 6  # of an axis that has only as many values; others have evenly spaced ones
MAX_LISTED = 200  # sweeps


class SweepRequest(Request):
    """A request about one sweep."""

    sweep: str = Field(max_length=60)


class ProgressRequest(SweepRequest):
    """A request for the progress of a sweep; ``version`` is that of the trials which the browser has."""

    version: str = Field("", max_length=40)


class RowsRequest(SweepRequest):
    """A request for rows of the table from an index on."""

    start: int = Field(0, ge=0)


class HeatRequest(SweepRequest):
    """A request for the heat map of two axes."""

    row: str = Field(max_length=100)
    column: str = Field(max_length=100)


class CurvesRequest(SweepRequest):
    """A request for the curves of some trials."""

    trials: list[str] = Field(min_length=1, max_length=MAX_CURVES)


class TrialRequest(SweepRequest):
    """A request about one trial, by the end of its name."""

    trial: str = Field(max_length=60)


class TableRequest(SweepRequest):
    """A request for the whole table as a file."""

    format: Literal["csv", "latex"]


def result_functions(runs: VisitorRuns) -> Mapping[str, ServerFunction]:
    """Return the server functions that show a sweep."""
    return {
        "sweeps": validated(Request, partial(sweeps, runs)),
        "progress": validated(ProgressRequest, partial(progress, runs)),
        "rows": validated(RowsRequest, partial(rows, runs)),
        "heat": validated(HeatRequest, partial(heat, runs)),
        "curves": validated(CurvesRequest, partial(curves, runs)),
        "trial": validated(TrialRequest, partial(trial, runs)),
        "table": validated(TableRequest, partial(table, runs)),
    }


def sweeps(runs: VisitorRuns, _: Request) -> dict[str, Any]:
    """Return the names of all sweeps, and which one is being trained."""
    return {"sweeps": runs.sweeps.names()[:MAX_LISTED], "active": runs.sweeps.active()}


def progress(runs: VisitorRuns, request: ProgressRequest) -> dict[str, Any]:
    """Return how far a sweep is, with its trials if they have changed."""
    found = runs.sweeps.progress(request.sweep)
    sweep, version = found.table.file.sweep, _version(found)
    best = found.table.rows[0] if found.table.rows and _is_measured(found.table.rows[0]) else None
    state = {
        "sweep": sweep.name,
        "status": found.status,
        "error": found.error,
        "counts": found.counts,
        "runs": {"done": sum(len(row.values) for row in found.table.rows), "total": sweep.num_runs},
        "training": len(found.running),
        "jobs": found.jobs,
        "room": found.room,
        "seconds_left": found.seconds_left,
        "metric": sweep.goal.metric,
        "minimize": sweep.goal.direction == "minimize",
        "seeds": sweep.num_seeds,
        "plan": _plan(found),
        "best": best and {"text": describe(_shown(found.table, best)), **_figures(best), "trial": best.trial},
        "version": version,
    }
    return state if version == request.version else state | {"trials": trials(found)}


def trials(found: SweepProgress) -> dict[str, Any]:
    """Return trials to draw, as columns; the values of an axis as numbers, or as indices into its labels."""
    table = found.table
    drawn = thinned(table.rows)
    axes = [_axis(table, key) for key in table.axes]
    return {
        "axes": [{key: value for key, value in axis.items() if key != "index"} for axis in axes],
        "names": [row.trial for row in drawn],
        "means": [_rounded(row.mean) for row in drawn],
        "states": [_state(row, found.running) for row in drawn],
        "values": [[_position(axis, row.settings[axis["key"]]) for row in drawn] for axis in axes],
        "importance": [importance(table.rows, key) for key in table.axes],
        "begun": len(table.rows),
        "measured": sum(map(_is_measured, table.rows)),
    }


def thinned(every: tuple[Row, ...]) -> list[Row]:
    """Return the best trials, and others evenly by rank, ``MAX_POINTS`` at most."""
    if len(every) <= MAX_POINTS:
        return list(every)
    rest, room = every[BEST_POINTS:], MAX_POINTS - BEST_POINTS
    return [*every[:BEST_POINTS], *(rest[i * len(rest) // room] for i in range(room))]


def rows(runs: VisitorRuns, request: RowsRequest) -> dict[str, Any]:
    """Return ``ROWS`` rows of the table, with the names of their trials."""
    found = runs.sweeps.table(request.sweep)
    shown = found.rows[request.start : request.start + ROWS]
    header, *cells = table_cells(found, shown)
    names = [row.trial for row in shown]
    return {"header": header, "cells": cells, "trials": names, "start": request.start, "total": len(found.rows)}


def heat(runs: VisitorRuns, request: HeatRequest) -> dict[str, Any]:
    """Return the heat map of two axes."""
    found = runs.sweeps.table(request.sweep)
    for axis in (request.row, request.column):
        if axis not in found.file.sweep.axes:
            raise SweepError(f"axis={axis!r} is not one of {', '.join(found.file.sweep.axes)}")
    result = heat_map(found.rows, request.row, request.column)
    means = [[_rounded(mean) for mean in line] for line in result.means]
    return {"rows": result.rows, "columns": result.columns, "means": means, "trials": result.trials}


def curves(runs: VisitorRuns, request: CurvesRequest) -> dict[str, Any]:
    """Return the goal's metric by training step for some trials: mean and deviation over their seeds."""
    found = runs.sweeps.table(request.sweep)
    metric = found.file.sweep.goal.metric
    curves = []
    for name in request.trials:
        row = _row(found, name)
        series: list[tuple[list[int], list[float]]] = []
        for seed in found.file.seeds:
            try:
                history = runs[f"{row.trial}-seed-{seed}"].history.evaluations()
            except RunError:  # not begun
                continue
            values = history.get(metric, [])
            points = [(step, value) for step, value in zip(history["step"], values, strict=False) if value is not None]
            if points:
                series.append(([step for step, _ in points], [value for _, value in points]))
        if series:
            label = describe(_shown(found, row))
            curves.append({"trial": row.trial, "label": label, "seeds": len(series), **mean_curve(series)})
    return {"metric": metric, "curves": curves}


def trial(runs: VisitorRuns, request: TrialRequest) -> dict[str, Any]:
    """Return a trial's settings and its runs."""
    found = runs.sweeps.table(request.sweep)
    row = _row(found, request.trial)
    training = runs.sweeps.training()
    listed: list[dict[str, Any]] = []
    for seed in found.file.seeds:
        name = f"{row.trial}-seed-{seed}"
        try:
            info = runs[name].info
        except RunError:
            listed.append({"seed": seed, "run": None, "status": "waiting", "value": None})
            continue
        value = getattr(info.validation, found.file.sweep.goal.metric, None)
        status = "training" if name in training else info.status
        listed.append({"seed": seed, "run": name, "status": status, "value": _rounded(value), "step": info.step})
    return {
        "trial": row.trial,
        "settings": [[key, value_text(value)] for key, value in row.settings.items()],
        "state": row.state,
        "runs": listed,
        "stoppable": runs.sweeps.active() == request.sweep and not row.has_ended,
        **_figures(row),
    }


def table(runs: VisitorRuns, request: TableRequest) -> dict[str, Any]:
    """Return the whole table as CSV or LaTeX."""
    found = runs.sweeps.table(request.sweep)
    suffix = {"csv": "csv", "latex": "tex"}[request.format]
    return {"text": FORMATS[request.format](found) + "\n", "name": f"{request.sweep}.{suffix}"}


def _row(found: SweepTable, name: str) -> Row:
    for row in found.rows:
        if row.trial == name:
            return row
    raise SweepError(f"trial={name!r}: the sweep has not begun such a trial")


def _version(found: SweepProgress) -> str:
    """Return what changes whenever the trials that are drawn do."""
    parts = [(row.trial, row.mean, row.state) for row in found.table.rows]
    return hashlib.sha256(repr((parts, sorted(found.running))).encode()).hexdigest()[:16]


def _plan(found: SweepProgress) -> str:
    """Return a sweep in one line: how its trials are chosen, and how many."""
    sweep = found.table.file.sweep
    how = {"grid": "grid", "random": "random search", "tpe": "TPE"}[sweep.search]
    pruning = "" if sweep.pruning == "none" else f", pruning by {sweep.pruning}"
    return f"{sweep.preset}, {how}{pruning}, {sweep.size}"


def _axis(found: SweepTable, key: str) -> dict[str, Any]:
    """Return how an axis is drawn: numbers on a scale, or labels in their order."""
    axis = found.file.sweep.axes[key]
    values = {row.settings[key] for row in found.rows}
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if numbers and len(numbers) == len(values):
        is_range = isinstance(axis, Range)
        low, high = min(numbers), max(numbers)
        is_log = axis.log if isinstance(axis, Range) else low > 0 and high / low > 8  # as its values are chosen
        ends = {"low": low, "high": high, "whole": is_range and is_integer_key(key, found.file.base)}
        ticks = sorted(numbers) if len(numbers) <= MAX_TICKS else None
        return {"key": key, "kind": "log" if is_log and low > 0 else "number", "ticks": ticks, "index": None} | ends
    labels = sorted(values, key=lambda value: (isinstance(value, str), str(value)))
    return {"key": key, "kind": "labels", "labels": list(map(value_text, labels)), "index": labels}


def _position(axis: dict[str, Any], value: Value) -> float | int | None:
    if axis["index"] is not None:
        return axis["index"].index(value)
    return _rounded(value) if isinstance(value, float) else value if isinstance(value, int) else None


def _state(row: Row, running: list[str]) -> str:
    if any(run.startswith(f"{row.trial}-seed-") for run in running):
        return "training"
    return "pruned" if row.pruned is not None else "done" if row.is_complete else "open"


def _is_measured(row: Row) -> bool:
    return row.mean is not None and row.pruned is None


def _figures(row: Row) -> dict[str, Any]:
    return {"mean": _rounded(row.mean), "sd": _rounded(row.sd), "n": len(row.values)}


def _shown(found: SweepTable, row: Row) -> dict[str, Value]:
    return {key: row.settings[key] for key in found.axes}


def _rounded(value: float | None) -> float | None:
    return json_number(value, digits=5)
