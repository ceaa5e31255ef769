"""Which trial comes next: all of a grid in turn, or what Optuna draws; and which one is pruned.

Optuna is imported only where trials are drawn or pruned.
"""

import contextlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from core.config import ConfigError, Preset
from core.runs.sweeps.folder import SweepError, SweepFile, SweepFolder, TrialRecord
from core.runs.sweeps.sweep import STEPS, Range, Sweep
from core.runs.sweeps.trials import Trial, grid_trials, is_integer_key, trial_of
from core.storage.optional_imports import require_package

MAX_ATTEMPTS = 100  # draws in a row that give no new trial, after which a search ends
EXHAUSTED = "no other valid settings were drawn"
_REDUCTION = 3  # of so many trials that reach a rung, pruning lets one go on


class Search(Protocol):
    """Gives out trials. Several processes may search in the same sweep at the same time."""

    def next(self) -> Trial | None:
        """Return the next trial, one that was begun before or a new one; None if there is none left."""

    def report(self, trial: Trial, number: int, value: float | None) -> bool:
        """Take the goal's metric after an evaluation of a trial's first seed; return whether to prune the trial."""

    def finish(self, trial: Trial, value: float | None) -> None:
        """Take the mean of the goal's metric over a trial's seeds; None if it was pruned or a seed failed."""


class GridSearch:
    """All trials of a grid in turn, which are recorded when they are given out."""

    def __init__(self, trials: Sequence[Trial], folder: SweepFolder) -> None:
        self._trials, self._folder = deque(trials), folder

    def next(self) -> Trial | None:
        """Return the next trial of the grid."""
        if not self._trials:
            return None
        trial = self._trials.popleft()
        if self._folder.record(trial.name) is None:
            self._folder.write_record(trial.name, TrialRecord(settings=trial.settings))
        return trial

    def report(self, trial: Trial, number: int, value: float | None) -> bool:
        """Prune nothing."""
        return False

    def finish(self, trial: Trial, value: float | None) -> None:
        """Do nothing: a grid does not depend on results."""


class OptunaSearch:
    """Trials that Optuna draws, or whose pruning it decides. Its study is in a journal file, or in a database.

    A trial's number in the study is in the trial's file. A trial that is running in the study but has no file was being
    drawn when its process was killed, and is marked as failed. All draws depend on the sweep's first seed and the
    trial's number only, and with TPE on the results so far.

    Args:
        file: the sweep and its base preset.
        folder: the sweep's folder.
        storage: URL of a database; None for the journal in the folder.

    Raises:
        LabError: Optuna is not installed, or its storage cannot be used or does not belong to this sweep.
    """

    def __init__(self, file: SweepFile, folder: SweepFolder, *, storage: str | None = None) -> None:
        self._sweep, self._base, self._folder = file.sweep, file.base, folder
        self._seed = file.seeds[0]
        self._optuna: Any = require_optuna(self._sweep)
        with folder.locked():
            self._study = self._opened(storage)
            records = folder.records()
            self._match(records)
        begun = sorted((record.number or 0, name) for name, record in records.items() if record.pruned is None)
        self._begun = deque(trial_of(self._sweep, self._base, records[name].settings) for _, name in begun)
        grid = grid_trials(self._sweep, self._base) if self._sweep.search == "grid" else []
        self._grid = deque(trial for trial in grid if trial.name not in records)
        self._running: dict[str, Any] = {}  # Optuna's trials, by name

    def next(self) -> Trial | None:
        """Return a trial that was begun before, then new ones."""
        if self._begun:
            return self._begun.popleft()
        with self._folder.locked():
            if self._sweep.search == "grid":
                return self._next_of_grid()
            for _ in range(MAX_ATTEMPTS):
                if self._num_counted() >= self._sweep.num_trials:
                    return None
                if trial := self._drawn():
                    return trial
            self._folder.exhausted.touch()
        return None

    def report(self, trial: Trial, number: int, value: float | None) -> bool:
        """Let Optuna's pruner decide; a trial that is pruned is recorded as such."""
        record = self._folder.record(trial.name)
        if self._sweep.pruning == "none" or record is None or value is None:
            return False
        running = self._running_trial(trial.name, record)
        if number not in running.storage.get_trial(running._trial_id).intermediate_values:  # it is after a resumption
            running.report(value, number)
        training = trial.preset.training
        if number >= -(-training.steps // training.evaluate_every) or not running.should_prune():
            return False  # at the last evaluation there is nothing to save
        self._folder.write_record(trial.name, record.model_copy(update={"pruned": number}))
        return True

    def finish(self, trial: Trial, value: float | None) -> None:
        """End the trial in the study; one with a failed run counts as pruned, so that TPE avoids its like."""
        record = self._folder.record(trial.name)
        if record is None or record.number is None:
            return
        state = self._optuna.trial.TrialState
        ended = state.PRUNED if value is None else state.COMPLETE
        self._study.tell(record.number, value, state=ended, skip_if_finished=True)
        self._running.pop(trial.name, None)

    def _opened(self, storage: str | None) -> Any:
        """Create or load the study."""
        optuna, sweep = self._optuna, self._sweep
        evaluations = most_evaluations(sweep, self._base)
        pruners = {
            "none": optuna.pruners.NopPruner,
            "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=_REDUCTION),
            "hyperband": lambda: optuna.pruners.HyperbandPruner(
                min_resource=1, max_resource=evaluations, reduction_factor=_REDUCTION
            ),
        }
        try:
            return optuna.create_study(
                storage=storage or _journal(optuna, self._folder.journal),
                study_name=sweep.name,
                direction=sweep.goal.direction,
                pruner=pruners[sweep.pruning](),
                load_if_exists=True,
            )
        except (ImportError, ValueError, optuna.exceptions.OptunaError) as error:
            raise self._unusable(storage, error) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "sqlalchemy":
                raise
            raise self._unusable(storage, error) from error

    def _unusable(self, storage: str | None, error: Exception) -> SweepError:
        where = "journal.log" if storage is None else f"--storage={storage.partition(':')[0]}:…"  # no password
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return SweepError(f"sweep={self._sweep.name!r}: {where} cannot be used: {reason}")

    def _match(self, records: dict[str, TrialRecord]) -> None:
        """Check that study and folder belong together, and end trials whose drawing was cut off."""
        state = self._optuna.trial.TrialState
        trials = self._study.get_trials(deepcopy=False)
        numbers = {record.number for record in records.values()}
        if lacking := next((name for name, each in records.items() if (each.number or 0) >= len(trials)), None):
            reason = "continue it with the command and the storage that it was begun with"
            raise SweepError(f"sweep={self._sweep.name!r}: its storage lacks {lacking}; {reason}")
        for trial in trials:
            if trial.number in numbers:
                continue
            if trial.state == state.RUNNING:
                self._study.tell(trial.number, state=state.FAIL)
            elif trial.state in (state.COMPLETE, state.PRUNED):
                raise SweepError(
                    f"sweep={self._sweep.name!r}: its storage has a trial {trial.number} that "
                    f"{self._folder.path.name}/ lacks; was another sweep of this name stored there?"
                )

    def _num_counted(self) -> int:
        """Return the number of trials in the study that count: all but draws that were given up."""
        failed = self._optuna.trial.TrialState.FAIL
        return sum(trial.state != failed for trial in self._study.get_trials(deepcopy=False))

    def _next_of_grid(self) -> Trial | None:
        while self._grid:
            trial = self._grid.popleft()
            if self._folder.record(trial.name) is None:  # else another process has begun it
                self._begin(trial, self._study.ask())
                return trial
        return None

    def _drawn(self) -> Trial | None:
        """Draw a trial and record it; None if its preset is not valid, or it was drawn before."""
        failed = self._optuna.trial.TrialState.FAIL
        self._study.sampler = self._sampler(len(self._study.get_trials(deepcopy=False)))
        asked = self._study.ask(self._distributions())
        try:
            trial = trial_of(self._sweep, self._base, {key: asked.params[key] for key in self._sweep.axes})
        except ConfigError:
            self._study.tell(asked, state=failed)
            return None
        if self._folder.record(trial.name) is not None:
            self._study.tell(asked, state=failed)
            return None
        self._begin(trial, asked)
        return trial

    def _begin(self, trial: Trial, asked: Any) -> None:
        self._folder.write_record(trial.name, TrialRecord(settings=trial.settings, number=asked.number))
        self._running[trial.name] = asked
        self._folder.exhausted.unlink(missing_ok=True)

    def _sampler(self, number: int) -> Any:
        """Return a sampler for one trial: with a seed of its own, so that a resumed search repeats no draw."""
        seed = (self._seed * 1_000_003 + number) % 2**32
        samplers = self._optuna.samplers
        return samplers.TPESampler(seed=seed) if self._sweep.search == "tpe" else samplers.RandomSampler(seed=seed)

    def _distributions(self) -> dict[str, Any]:
        kinds = self._optuna.distributions
        found: dict[str, Any] = {}
        for key, axis in self._sweep.axes.items():
            if not isinstance(axis, Range):
                found[key] = kinds.CategoricalDistribution(axis)
            elif is_integer_key(key, self._base):
                found[key] = kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.log, step=axis.step or 1)
            else:
                found[key] = kinds.FloatDistribution(float(axis.low), float(axis.high), log=axis.log)
        return found

    def _running_trial(self, name: str, record: TrialRecord) -> Any:
        """Return Optuna's trial, also of one that another process has begun."""
        if name not in self._running:
            frozen = self._study.get_trials(deepcopy=False)[record.number or 0]
            self._running[name] = self._optuna.trial.Trial(self._study, frozen._trial_id)
        return self._running[name]


def open_search(file: SweepFile, folder: SweepFolder, trials: Sequence[Trial], *, storage: str | None = None) -> Search:
    """Return what gives out the trials of a sweep whose folder is prepared.

    Args:
        trials: those of a grid; ignored for others.
        storage: see ``OptunaSearch``.

    Raises:
        LabError: Optuna is needed but not installed, or its storage cannot be used.
    """
    return OptunaSearch(file, folder, storage=storage) if file.sweep.needs_optuna else GridSearch(trials, folder)


def most_evaluations(sweep: Sweep, base: Preset) -> int:
    """Return the number of evaluations of the sweep's longest runs, without the one before the first update."""
    steps, every = (_values(key, sweep, base) for key in (STEPS, "training.evaluate_every"))
    longest = max(steps) if sweep.goal.updates is None else sweep.goal.updates
    return -(-longest // min(every))


def _values(key: str, sweep: Sweep, base: Preset) -> list[int]:
    """Return the values that an integer of the training section has in a sweep; of a range, its ends."""
    axis = sweep.axes.get(key)
    if isinstance(axis, Range):
        return [int(axis.low), int(axis.high)]
    values = axis or (sweep.set.get(key, getattr(base.training, key.partition(".")[2])),)
    return [value for value in values if isinstance(value, int)]


def require_optuna(sweep: Sweep) -> Any:
    """Import Optuna, with its log limited to warnings.

    Raises:
        LabError: it is not installed.
    """
    purpose = f"search={sweep.search!r}" if sweep.search != "grid" else f"pruning={sweep.pruning!r}"
    optuna: Any = require_package("optuna", purpose=purpose)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class _JournalLock:
    """A lock that ends with its process; Optuna's own stay behind, and block others for half a minute."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path, thread_local=False)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _journal(optuna: Any, path: Path) -> Any:
    """Open a journal file; a last line that a crash cut off is removed."""
    lock = _JournalLock(path.with_name(".journal.lock"))
    lock.acquire()
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
    lock.release()
    backend = optuna.storages.journal.JournalFileBackend(str(path.resolve()), lock_obj=lock)
    return optuna.storages.JournalStorage(backend)
