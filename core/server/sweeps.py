"""The sweeps in a folder of runs: started, watched and stopped from the page. One is trained at a time.

Trials are processes with one torch thread each, as those of the command ``sweep``. The trainings of the page go first:
the sweep uses the cores that they leave, and saves a run to resume it later if they need another one.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.config import ConfigError
from core.config.counting import counted
from core.runs import ACTIVE, RunError, RunFolder, RunInfo
from core.runs.sweeps.checks import check_sweep
from core.runs.sweeps.driver import Driver, RunResult
from core.runs.sweeps.folder import SweepError, SweepFile, SweepFolder, TrialRecord, sweep_names
from core.runs.sweeps.processes import usable_cores
from core.runs.sweeps.search import EXHAUSTED, open_search, require_optuna
from core.runs.sweeps.sweep import MAX_RUNS
from core.runs.sweeps.table import Row, SweepTable, sweep_table
from core.runs.sweeps.trials import examined_trials
from core.storage.cache import FileCache
from core.storage.error_messages import explain_error, short_repr
from core.storage.errors import LabError

TABLE_SECONDS = 1.0  # for which a table is kept: it is asked for again and again
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        table: its trials that have begun.
        status: "training" here, "stopping", "elsewhere" if other processes train runs of it, or "idle".
        error: why the last training ended, if it failed or drew fewer trials than it should.
        running: names of the runs that are being trained.
        room: number of processes that may train now, beside the page's own trainings; None if it is not training here.
        jobs: number of processes that it was started with; None if it is not training here.
        seconds_left: estimated seconds to its end; None if nobody knows.
    """

    table: SweepTable
    status: str
    error: str
    running: list[str]
    room: int | None
    jobs: int | None
    seconds_left: float | None

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials that are complete, pruned, stopped, failed, running and waiting, and of all."""
        numbers = Counter(_state_of(row, self.running) for row in self.table.rows)
        states = ("complete", "pruned", "stopped", "failed", "running", "waiting")
        numbers["waiting"] += self.table.num_unbegun
        return {state: numbers[state] for state in states} | {"total": self.table.file.sweep.num_trials}


class _Session:
    """One training of a sweep, in a thread of its own."""

    def __init__(
        self, file: SweepFile, driver: Callable[["_Session"], Driver], *, jobs: int, estimate: float | None
    ) -> None:
        self.file, self.jobs, self.estimate = file, jobs, estimate
        self.error, self.is_stopping = "", False
        self.results: Counter[str] = Counter()
        self.failures: list[RunResult] = []
        self.started = time.monotonic()
        self.driver = driver(self)
        self.thread = threading.Thread(target=self._run, name=f"sweep {file.sweep.name}", daemon=True)

    def take(self, result: RunResult) -> None:
        """Count a result."""
        self.results[result.status] += 1
        if result.status == "failed":
            self.failures.append(result)

    def stop(self) -> None:
        """Save and stop all runs."""
        self.is_stopping = True
        self.driver.stop()

    @property
    def seconds_left(self) -> float | None:
        """From the runs that have ended so far; before the first, from the estimate."""
        elapsed = time.monotonic() - self.started
        ended = sum(self.results[each] for each in ("done", "pruned", "failed"))
        left = self.file.sweep.num_runs - self.results.total()
        if ended:
            return elapsed / ended * left
        return None if self.estimate is None else max(0.0, self.estimate - elapsed)

    def _run(self) -> None:
        try:
            self.driver.run()
            if self.failures:
                first = self.failures[0]
                self.error = f"{counted(len(self.failures), 'run')} failed; {first.run}: {first.message}"
        except Exception as error:  # noqa: BLE001 - shown on the page; the runs are saved
            _log.error("sweep failed", extra={"sweep": self.file.sweep.name}, exc_info=error)
            self.error = str(error) if isinstance(error, LabError) else explain_error(error)
        _log.info("sweep ended", extra={"sweep": self.file.sweep.name, **self.results})


class Sweeps:
    """The sweeps in one folder of runs. Thread-safe.

    Args:
        root: the folder, such as ``checkpoints``.
        busy_cores: returns how many cores other trainings of this process use.
    """

    def __init__(self, root: Path, *, busy_cores: Callable[[], int]) -> None:
        self.root, self._busy_cores = root, busy_cores
        self._session: _Session | None = None
        self._lock = threading.Lock()
        self._infos: FileCache[RunInfo] = FileCache(MAX_RUNS)
        self._records: FileCache[TrialRecord] = FileCache(MAX_RUNS)
        self._tables: dict[str, tuple[float, SweepTable]] = {}

    def names(self) -> list[str]:
        """Return the names of all sweeps, sorted."""
        return sweep_names(self.root)

    def read(self, name: str) -> SweepFile:
        """Return a sweep and its base preset; SweepError if there is no such sweep."""
        return SweepFolder(self.root, name).read()

    def active(self) -> str | None:
        """Return the name of the sweep that is being trained, or None."""
        session = self._active()
        return None if session is None else session.file.sweep.name

    def training(self) -> list[str]:
        """Return the names of the runs that are being trained for a sweep."""
        session = self._active()
        return [] if session is None else session.driver.training()

    def check(self, file: SweepFile, *, jobs: int, pairs: Path | None) -> None:
        """Refuse a sweep that cannot succeed; see ``check_sweep``.

        Raises:
            LabError: naming the field, its value and the rule.
        """
        cores = usable_cores()
        if not 1 <= jobs <= cores:
            rule = f"jobs={jobs} must be from 1 to {cores}, the number of cores that this process may use"
            raise ConfigError([("jobs", rule)])
        if gpus := file.sweep.resources.gpus:
            rule = f"resources.gpus={gpus:g} needs a Ray cluster, which sweeps of the page do not use"
            raise ConfigError([("resources", rule)])
        if file.sweep.needs_optuna:
            require_optuna(file.sweep)
        trials = examined_trials(file.sweep, file.base)
        check_sweep(file, trials, SweepFolder(self.root, file.sweep.name), pairs)

    def start(
        self, file: SweepFile, *, jobs: int, pairs: Path | None, extend: bool = False, estimate: float | None = None
    ) -> None:
        """Train what is not done yet of a new sweep, or of one that was begun.

        Args:
            jobs: number of runs to train at the same time.
            pairs: the file of the task's own pairs, if it has any.
            extend: allow more seeds, values and trials than the sweep was begun with.
            estimate: seconds that it is estimated to take.

        Raises:
            SweepError: another sweep is being trained.
            LabError: this one cannot succeed, or differs from the sweep of this name that was begun.
        """
        with self._lock:
            if active := self.active():
                raise SweepError(f"sweep={active!r} is being trained; stop it, or wait until it has ended")
            self.check(file, jobs=jobs, pairs=pairs)
            folder = SweepFolder(self.root, file.sweep.name)
            try:
                folder.prepare(file, extend=extend)
            except OSError as error:
                raise SweepError(f"sweep={file.sweep.name!r} cannot be started: {explain_error(error)}") from error
            search = open_search(file, folder, examined_trials(file.sweep, file.base))

            def driver(session: _Session) -> Driver:
                return Driver(folder, file, search, jobs=jobs, pairs=pairs, room=self.room, on_result=session.take)

            session = _Session(file, driver, jobs=jobs, estimate=estimate)
            session.thread.start()
            self._session = session
            self._tables.pop(file.sweep.name, None)
        _log.info("sweep started", extra={"sweep": file.sweep.name, "runs": file.sweep.num_runs, "jobs": jobs})

    def room(self) -> int:
        """Return the number of cores that a sweep may use now, which the page's own trainings leave."""
        return max(0, usable_cores() - self._busy_cores())

    def stop(self) -> None:
        """Save and stop the sweep that is being trained, if any. It can be started again."""
        session = self._active()
        if session is not None:
            session.stop()

    def stop_trial(self, name: str, trial: str) -> None:
        """Save and stop the runs of a trial, and train none of them any more.

        Raises:
            SweepError: the sweep is not being trained, or has not begun such a trial.
        """
        session = self._active()
        if session is None or session.file.sweep.name != name:
            raise SweepError(f"sweep={name!r} is not being trained here, so no trial of it can be stopped")
        if trial not in SweepFolder(self.root, name).records():
            raise SweepError(f"trial={short_repr(trial)}: the sweep has not begun such a trial")
        session.driver.stop_trial(trial)

    def stop_run(self, run: str) -> bool:
        """Stop the trial of a run, and return whether a sweep is training it."""
        session = self._active()
        if session is None or run not in session.driver.training():
            return False
        session.driver.stop_trial(run.rpartition("-seed-")[0])
        return True

    def progress(self, name: str) -> SweepProgress:
        """Return how far a sweep is; SweepError if there is no such sweep, or a file of it is damaged."""
        table, session = self.table(name), self._session
        early = EXHAUSTED if table.is_exhausted else ""
        if session is None or session.file.sweep.name != name:
            running = self._training_elsewhere(table)
            return SweepProgress(table, "elsewhere" if running else "idle", early, running, None, None, None)
        if not session.thread.is_alive():
            return SweepProgress(table, "idle", session.error or early, [], None, None, None)
        status = "stopping" if session.is_stopping else "training"
        room = min(session.jobs, self.room())
        return SweepProgress(table, status, "", session.driver.training(), room, session.jobs, session.seconds_left)

    def table(self, name: str) -> SweepTable:
        """Return the table of a sweep, at most ``TABLE_SECONDS`` old; refused as ``progress`` is."""
        now = time.monotonic()
        if name in self._tables and now - self._tables[name][0] < TABLE_SECONDS:
            return self._tables[name][1]
        folder = SweepFolder(self.root, name)
        records = folder.records(self._records.get)
        table = sweep_table(folder, records=records, read_info=self._read_info)
        self._tables[name] = time.monotonic(), table
        return table

    def close(self, *, seconds: float = 5.0) -> None:
        """Stop what is being trained, and wait until it is saved."""
        session = self._active()
        if session is not None:
            session.stop()
            session.thread.join(seconds)

    def _active(self) -> _Session | None:
        session = self._session
        return session if session is not None and session.thread.is_alive() else None

    def _read_info(self, folder: RunFolder) -> RunInfo:
        return self._infos.get(folder.path / "run.json", folder.written_info)

    def _training_elsewhere(self, table: SweepTable) -> list[str]:
        """Return the runs that living processes train; those of killed ones only say so."""
        found = []
        for run in (run for row in table.rows for run in row.training):
            try:
                info = RunFolder(self.root, run).read_info()
            except RunError:  # deleted meanwhile
                continue
            if info.status in ACTIVE:
                found.append(run)
        return found


def _state_of(row: Row, running: list[str]) -> str:
    if any(run.startswith(f"{row.trial}-seed-") for run in running):
        return "running"
    if row.pruned is not None:
        return "pruned"
    if row.is_complete:
        return "complete"
    if row.stopped:
        return "stopped"
    return "failed" if row.failed and row.has_ended else "waiting"
