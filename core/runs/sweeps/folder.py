"""A sweep's folder on disk, ``checkpoints/NAME.sweep/``, beside the runs it trains.

sweep.json       the sweep and its base preset (``SweepFile``)
trials/          a file for each trial that was begun: its settings, and whether it was pruned (``TrialRecord``)
journal.log      Optuna's journal, if trials are drawn or pruned
exhausted        empty; there if no other valid settings were drawn, so that the search ended early
.lock            held while trials are drawn, so that several processes can share a sweep

A run's name has no dot, so a sweep's folder is never taken for a run. What was trained stands in the runs themselves;
a trial's file never has a figure.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from filelock import FileLock
from pydantic import Field, PlainSerializer, PlainValidator, ValidationError

from core.config import ConfigError, Preset, parse_preset
from core.config.sections import Section
from core.runs import ACTIVE, RunError, RunFolder, RunInfo
from core.runs.sweeps.sweep import Range, Settings, Sweep
from core.runs.sweeps.trials import run_name
from core.storage.atomic import write_atomically
from core.storage.error_messages import short_repr
from core.storage.errors import LabError

RunState = Literal["new", "done", "busy", "broken off", "failed"]
_SUFFIX = ".sweep"


class SweepError(LabError):
    """A sweep cannot be found, continued or extended; the message names the sweep and the reason."""


def _as_preset(value: Any) -> Preset:
    return value if isinstance(value, Preset) else parse_preset(value)


# Read and written by ``Preset`` itself: a plugin's family changes what it accepts, which a copy of its schema misses.
_Base = Annotated[Preset, PlainValidator(_as_preset), PlainSerializer(lambda preset: preset.model_dump(mode="json"))]


class SweepFile(Section):
    """Content of ``sweep.json``."""

    format: Literal["attention-lab-sweep-1"] = "attention-lab-sweep-1"
    sweep: Sweep
    base: _Base

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every trial."""
        return self.sweep.seeds_from(self.base)


class TrialRecord(Section):
    """Content of a trial's file.

    Attributes:
        settings: the value of each axis.
        number: of the trial in Optuna's study; None if nothing is drawn or pruned.
        pruned: the evaluation, from 1, after which its first seed was stopped and the others were not trained.
        stopped: whether the user stopped this trial, so that none of its runs is trained any more.
    """

    settings: Settings
    number: Annotated[int | None, Field(ge=0)] = None
    pruned: Annotated[int | None, Field(ge=1)] = None
    stopped: bool = False


ReadRecord = Callable[[Path, Callable[[], TrialRecord]], TrialRecord]


class SweepFolder:
    """The folder of one sweep. Several processes may use it at the same time."""

    def __init__(self, root: Path, name: str) -> None:
        """Refer to a sweep by name; the folder need not exist.

        Raises:
            SweepError: the name is not a valid one.
        """
        try:
            RunFolder(root, name)
        except RunError as error:
            raise SweepError(f"sweep={short_repr(name)} is not a valid name: use a-z, 0-9 and -") from error
        self.root, self.name = root, name
        self.path = root / f"{name}{_SUFFIX}"

    @property
    def journal(self) -> Path:
        """Path of Optuna's journal, which may not exist."""
        return self.path / "journal.log"

    @property
    def exhausted(self) -> Path:
        """Path of an empty file, which exists if no other valid settings were drawn, so that the search ended early."""
        return self.path / "exhausted"

    def read(self) -> SweepFile:
        """Read the sweep and its base preset.

        Raises:
            SweepError: there is no such sweep, or its file is damaged or has a preset that needs a plugin.
        """
        try:
            return SweepFile.model_validate_json((self.path / "sweep.json").read_bytes())
        except FileNotFoundError as error:
            known = ", ".join(sweep_names(self.root)) or "none"
            raise SweepError(f"sweep={self.name!r}: there is no such sweep; there are: {known}") from error
        except OSError as error:
            raise SweepError(f"sweep={self.name!r}: sweep.json cannot be read: {error.strerror}") from error
        except ValidationError as error:
            causes = [detail.get("ctx", {}).get("error") for detail in error.errors()]
            unusable = next((str(each) for each in causes if isinstance(each, ConfigError)), None)
            reason = "sweep.json is damaged" if unusable is None else f"its preset cannot be used: {unusable}"
            raise SweepError(f"sweep={self.name!r}: {reason}") from error

    def prepare(self, file: SweepFile, *, extend: bool) -> None:
        """Create the folder, or check that it belongs to the same sweep.

        Args:
            extend: allow more seeds, more values and more trials than it had before, and store them.

        Raises:
            SweepError: there is another sweep of this name, or the sweep has changed in another way.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self.locked():
            if (self.path / "sweep.json").exists():
                old = self.read()
                if old == file:
                    return
                check_extension(old, file, extend=extend)
            write_atomically(self.path / "sweep.json", file.model_dump_json(indent=1).encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the sweep's lock inside the block; wait for it as long as another process holds it."""
        with FileLock(self.path / ".lock", thread_local=False):
            yield

    def records(self, cached: ReadRecord = lambda path, read: read()) -> dict[str, TrialRecord]:
        """Read all trials that were begun, by name, sorted by name.

        Args:
            cached: returns what its second argument reads from a path, or what it has read before.

        Raises:
            SweepError: a file is damaged.
        """
        folder = self.path / "trials"
        names = sorted(path.stem for path in folder.glob("*.json") if not path.name.startswith("."))
        return {name: cached(folder / f"{name}.json", partial(self._record, name)) for name in names}

    def record(self, name: str) -> TrialRecord | None:
        """Read a trial's file; None if it was not begun."""
        return self._record(name) if (self.path / "trials" / f"{name}.json").exists() else None

    def write_record(self, name: str, record: TrialRecord) -> None:
        """Write a trial's file."""
        (self.path / "trials").mkdir(exist_ok=True)
        write_atomically(self.path / "trials" / f"{name}.json", record.model_dump_json().encode())

    def run(self, trial: str, seed: int) -> RunFolder:
        """Return the folder of a run, which may not exist."""
        return RunFolder(self.root, run_name(trial, seed))

    def _record(self, name: str) -> TrialRecord:
        try:
            return TrialRecord.model_validate_json((self.path / "trials" / f"{name}.json").read_bytes())
        except (OSError, ValidationError) as error:
            raise SweepError(f"sweep={self.name!r}: trials/{name}.json is damaged; delete it and try again") from error


def sweep_names(root: Path) -> list[str]:
    """Return the names of the sweeps in a folder of runs, sorted."""
    names = os.listdir(root) if root.is_dir() else []
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def run_state(folder: RunFolder, sweep: Sweep) -> RunState:
    """Return what has become of a run of a sweep.

    "busy" is a run that a living process trains; "broken off" one that was stopped or killed, which can be resumed.
    """
    if not folder.exists():
        return "new"
    info = folder.read_info()
    if is_done(info, sweep):
        return "done"
    if info.status in ACTIVE:
        return "busy"
    return "failed" if info.status == "failed" else "broken off"


def is_done(info: RunInfo, sweep: Sweep) -> bool:
    """Whether a run has made all its updates, or was stopped after the minutes of the sweep's goal."""
    if info.status == "finished":
        return True
    minutes = sweep.goal.minutes
    return info.status == "stopped" and minutes is not None and info.seconds >= 60 * minutes


def check_extension(old: SweepFile, new: SweepFile, *, extend: bool) -> None:
    """Refuse a sweep that changes anything but adds seeds, values to the lists of a grid, or trials to a search.

    Resources may change: no result depends on them.

    Args:
        extend: allow more runs than the sweep was begun with.

    Raises:
        ConfigError: naming the first field that differs, and the rule.
    """
    name = new.sweep.name
    if old.base != new.base:
        changed = next(iter(new.base.changed_from(old.base)), "description")
        raise _refused(name, "preset", f"{changed} of the base preset has changed since it was begun")
    fixed = ("preset", "set", "goal", "search", "pruning")
    for field in fixed:
        if getattr(old.sweep, field) != getattr(new.sweep, field):
            raise _refused(name, field, "it has changed since the sweep was begun")
    if old.sweep.axes.keys() != new.sweep.axes.keys():
        raise _refused(name, "axes", f"the sweep was begun with {', '.join(old.sweep.axes)}")
    for key, axis in old.sweep.axes.items():
        _check_axis(name, key, axis, new.sweep)
    if missing := set(old.seeds) - set(new.seeds):
        raise _refused(name, "seeds", f"the sweep was begun with seed {min(missing)} too")
    if old.seeds[0] != new.seeds[0]:
        raise _refused(name, "seeds", f"the first seed must stay {old.seeds[0]}")
    if (old.sweep.trials or 0) > (new.sweep.trials or 0):
        raise _refused(name, "trials", f"{new.sweep.trials} are fewer than the {old.sweep.trials} it was begun with")
    if new.sweep.num_runs > old.sweep.num_runs and not extend:
        raise ConfigError(
            [("sweep", f"sweep={name!r} has more seeds, values or trials than when it was begun; pass --extend")]
        )


def _check_axis(name: str, key: str, old: tuple | Range, new: Sweep) -> None:
    axis = new.axes[key]
    if axis == old:
        return
    if isinstance(old, Range) or isinstance(axis, Range) or new.search != "grid":
        raise _refused(name, f"axes.{key}", "only lists of search='grid' can be extended")
    if missing := [value for value in old if value not in axis]:
        raise _refused(name, f"axes.{key}", f"the sweep was begun with {missing[0]!r} too")


def _refused(name: str, field: str, reason: str) -> ConfigError:
    message = f"{field}: {reason}; only seeds, values and trials can be added. Give the new sweep another name"
    return ConfigError([(field, f"sweep={name!r}: {message}")])
