"""The table of a sweep: a row a trial, with mean, deviation and intervals over seeds. It reads ``run.json`` only."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from core.evaluation.significance import Spread, bootstrap_interval, t_interval
from core.runs import ACTIVE, RunError, RunFolder, RunInfo
from core.runs.sweeps.folder import SweepError, SweepFile, SweepFolder, TrialRecord, is_done
from core.runs.sweeps.sweep import Metric, Settings
from core.runs.sweeps.trials import run_name, value_text
from core.runs.text_tables import aligned, digits_for, interval, latex, number

Interval = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One trial.

    Attributes:
        trial: its name, with which the names of its runs begin.
        settings: the value of each axis.
        runs: its runs that are done, in the order of the seeds.
        values: the goal's metric of each of them.
        seeds: number of seeds that the sweep has.
        failed: number of its runs that failed.
        pruned: the evaluation after which it was pruned; None if it was not.
        stopped: whether the user stopped it.
        training: its runs that are said to be training.
        mean, sd: over ``values``; None if there is none, or for the deviation fewer than two.
        seconds: mean training time of the runs.
        parameters: of the model; None if no run has begun.
    """

    trial: str
    settings: Settings
    runs: tuple[str, ...]
    values: tuple[float, ...]
    seeds: int
    failed: int
    pruned: int | None
    stopped: bool
    training: tuple[str, ...]
    mean: float | None
    sd: float | None
    seconds: float | None
    parameters: int | None

    @cached_property
    def t_interval(self) -> Interval | None:
        """95 % t interval of the mean; None for fewer than two values."""
        return t_interval(self.values) if self.values else None

    @cached_property
    def bootstrap_interval(self) -> Interval | None:
        """95 % bootstrap interval of the mean; None for fewer than two values. Takes milliseconds."""
        return bootstrap_interval(self.values) if self.values else None

    @property
    def is_complete(self) -> bool:
        """Whether every seed is done and has a figure."""
        return len(self.values) == self.seeds

    @property
    def state(self) -> str:
        """How far it is: ``5/5``, ``pruned`` or ``3/5, 1 failed``."""
        if self.pruned is not None:
            return "pruned"
        ends = [f"{self.failed} failed"] if self.failed else []
        ends += ["stopped"] if self.stopped and not self.is_complete else []
        return ", ".join([f"{len(self.values)}/{self.seeds}", *ends])

    @property
    def has_ended(self) -> bool:
        """Whether none of its runs is trained any more, unless failed ones are tried again."""
        return (
            self.is_complete or self.pruned is not None or self.stopped or len(self.values) + self.failed >= self.seeds
        )

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        fields = {key: value for key, value in asdict(self).items() if key != "training"}
        intervals = {"t_interval": self.t_interval, "bootstrap_interval": self.bootstrap_interval}
        return fields | intervals | {"state": self.state}


@dataclass(frozen=True)
class SweepTable:
    """All trials of a sweep that have begun.

    Attributes:
        file: the sweep and its base preset.
        rows: complete trials first, the best first; then the others.
        is_exhausted: whether there are fewer than the sweep should have, because no other valid settings were drawn.
    """

    file: SweepFile
    rows: tuple[Row, ...]
    is_exhausted: bool

    @property
    def num_unbegun(self) -> int:
        """Number of trials that are still to begin."""
        return 0 if self.is_exhausted else max(0, self.file.sweep.num_trials - len(self.rows))

    @property
    def runs_left(self) -> int:
        """Number of runs that are trained if the sweep goes on; failed ones are tried again."""
        open_rows = [row for row in self.rows if row.pruned is None and not row.stopped]
        return self.num_unbegun * len(self.file.seeds) + sum(row.seeds - len(row.values) for row in open_rows)

    @property
    def axes(self) -> list[str]:
        """The axes on which trials differ; all if there is only one trial."""
        axes = list(self.file.sweep.axes)
        different = [key for key in axes if len({str(row.settings[key]) for row in self.rows}) > 1]
        return different or axes

    def as_json(self) -> dict[str, Any]:
        """Return the table as plain data."""
        sweep = self.file.sweep
        return {
            "sweep": sweep.name,
            "metric": sweep.goal.metric,
            "direction": sweep.goal.direction,
            "search": sweep.search,
            "trials": sweep.num_trials,
            "seeds": list(self.file.seeds),
            "rows": [row.as_json() for row in self.rows],
        }


InfoReader = Callable[[RunFolder], RunInfo]


def sweep_table(
    folder: SweepFolder,
    *,
    metric: Metric | None = None,
    records: dict[str, TrialRecord] | None = None,
    read_info: InfoReader = RunFolder.written_info,
) -> SweepTable:
    """Read the table of a sweep, also while it trains.

    Args:
        metric: to show and to order by; None for the goal's.
        records: those of the folder, if they are known.
        read_info: reads a run's ``run.json``, such as through a cache.

    Raises:
        SweepError: there is no such sweep, or a file of it is damaged.
    """
    file = folder.read()
    if metric is not None:
        goal = file.sweep.goal.model_copy(update={"metric": metric})
        file = file.model_copy(update={"sweep": file.sweep.model_copy(update={"goal": goal})})
    begun = folder.records() if records is None else records
    rows = [_row(folder, file, name, record, read_info) for name, record in begun.items()]
    if metric is not None and any(row.seconds is not None for row in rows) and not any(row.values for row in rows):
        raise SweepError(f"metric={metric}: no run of the sweep {folder.name} measured it")
    sign = 1 if file.sweep.goal.direction == "minimize" else -1

    def order(row: Row) -> tuple[bool, bool, float]:
        return not row.is_complete or row.pruned is not None, row.mean is None, sign * (row.mean or 0.0)

    is_exhausted = len(rows) < file.sweep.num_trials and folder.exhausted.exists()
    return SweepTable(file, tuple(sorted(rows, key=order)), is_exhausted)


def _row(folder: SweepFolder, file: SweepFile, name: str, record: TrialRecord, read_info: InfoReader) -> Row:
    done: dict[str, float] = {}
    seconds: list[float] = []
    training: list[str] = []
    parameters, failed = None, 0
    for seed in file.seeds:
        run = run_name(name, seed)
        try:
            info = read_info(RunFolder(folder.root, run))
        except RunError:  # not begun, or damaged: then the sweep trains it again or says so
            continue
        parameters = info.parameters or parameters
        failed += info.status == "failed"
        training += [run] if info.status in ACTIVE else []
        value = getattr(info.validation, file.sweep.goal.metric, None)
        if is_done(info, file.sweep):
            seconds.append(info.seconds)
            if value is not None:
                done[run] = value
    values = list(done.values())
    spread = Spread.of(values) if values else None
    return Row(
        trial=name,
        settings=record.settings,
        runs=tuple(done),
        values=tuple(values),
        seeds=len(file.seeds),
        failed=failed,
        pruned=record.pruned,
        stopped=record.stopped,
        training=tuple(training),
        mean=spread.mean if spread else None,
        sd=spread.sd if spread else None,
        seconds=fmean(seconds) if seconds else None,
        parameters=parameters,
    )


# ---- formats

_HEADER = ("runs", "mean", "sd", "95 % t interval", "95 % bootstrap interval", "seconds", "parameters")


def as_text(table: SweepTable) -> str:
    """Format the table for a terminal."""
    return aligned(table_cells(table))


def as_csv(table: SweepTable) -> str:
    """Format the table as CSV, with all digits and the ends of intervals in columns of their own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ends = ("t_low", "t_high", "bootstrap_low", "bootstrap_high")
    metric = table.file.sweep.goal.metric
    axes = list(table.file.sweep.axes)
    counts = ("runs", "seeds", "failed", "pruned")
    writer.writerow(["trial", *axes, *counts, f"{metric}_mean", f"{metric}_sd", *ends, "seconds", "parameters"])
    for row in table.rows:
        intervals = [*(row.t_interval or (None, None)), *(row.bootstrap_interval or (None, None))]
        counted = [len(row.values), row.seeds, row.failed, row.pruned]
        settings = [row.settings[key] for key in axes]
        writer.writerow([row.trial, *settings, *counted, row.mean, row.sd, *intervals, row.seconds, row.parameters])
    return text.getvalue().rstrip("\n")


def as_latex(table: SweepTable) -> str:
    """Format the table as a LaTeX ``tabular`` for the package ``booktabs``."""
    return latex(table_cells(table))


FORMATS: dict[str, Callable[[SweepTable], str]] = {"text": as_text, "csv": as_csv, "latex": as_latex}


def table_cells(table: SweepTable, rows: Sequence[Row] | None = None) -> list[list[str]]:
    """Return header and rows as text; intervals have as many digits as the deviation needs.

    Args:
        rows: some of the table's; None for all.
    """
    axes = table.axes
    names = [key.partition(".")[2] for key in axes]
    if len(set(names)) < len(names):  # task.x and model.x
        names = axes
    metric = table.file.sweep.goal.metric.replace("_", " ")
    header = [*names, *_HEADER]
    header[len(names) + 1] = f"mean {metric}"
    cells = [header]
    for row in table.rows if rows is None else rows:
        digits = digits_for(row.mean, row.sd)
        figures = [number(row.mean, digits), number(row.sd, digits)]
        figures += [interval(row.t_interval, digits), interval(row.bootstrap_interval, digits)]
        seconds = "–" if row.seconds is None else f"{row.seconds:.1f}"
        parameters = "–" if row.parameters is None else f"{row.parameters:,}"
        settings = [value_text(row.settings[key]) for key in axes]
        cells.append([*settings, row.state, *figures, seconds, parameters])
    return cells
