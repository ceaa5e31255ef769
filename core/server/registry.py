"""All runs, to be started, stopped, resumed, watched and listed. The server owns them, not the page."""

import logging
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.config import Preset
from core.runs import ACTIVE, RunError, RunFolder, RunInfo, check_resumable, list_runs
from core.runs.importing import import_run
from core.runs.replay import Replay
from core.server.inference_priority import InferencePriority
from core.server.limits import LAPTOP, Limits
from core.server.live import LiveRun
from core.server.loaded_models import LoadedModels, LoadedRun
from core.server.ownership import Ownership, path_of_ownership, read_ownership, write_ownership
from core.server.workers import WorkerPool
from core.storage.cache import FileCache
from core.storage.error_messages import explain_error
from core.training.history import History

CACHED_FILES = 2_000
CACHED_HISTORIES = 16
CACHED_REPLAYS = 8
SECONDS_OF_A_LIST = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunProgress:
    """Where a run stands.

    Attributes:
        steps: how many it is to make in all.
        queue_position: position in the queue, from 1; None when it does not wait.
        steps_per_second: over the last seconds; None when it does not train here.
    """

    info: RunInfo
    steps: int
    queue_position: int | None = None
    steps_per_second: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time to the last step at the present rate, evaluations included."""
        return (self.steps - self.info.step) / self.steps_per_second if self.steps_per_second else None


@dataclass(frozen=True)
class Listed:
    """A run that can be read."""

    name: str
    ownership: Ownership
    shipped: bool


class Runs:
    """All runs below one folder: those this process trains, those that wait, and those on disk.

    Args:
        root: the folder, such as ``checkpoints``.
        limits: how many train at once, of which others wait in a queue, see ``RunQueue``; and what else holds here.
        threads: torch threads of each.

    Attributes:
        inference_priority: of those who make an answer with a model of them.
    """

    def __init__(self, root: Path, *, limits: Limits = LAPTOP, threads: int = 1) -> None:
        self.root, self.limits = root, limits
        self._models, self.inference_priority = LoadedModels(), InferencePriority()
        self._slots = WorkerPool(
            most=limits.max_runs,
            most_each=limits.max_training_per_visitor,
            threads=threads,
            inference_priority=self.inference_priority,
            on_end=self._models.forget,
        )
        self._presets: FileCache[Preset] = FileCache(CACHED_FILES)
        self._infos: FileCache[RunInfo] = FileCache(CACHED_FILES)
        self._ownerships: FileCache[Ownership] = FileCache(CACHED_FILES)
        self._histories: FileCache[History] = FileCache(CACHED_HISTORIES)
        self._replays: FileCache[Replay] = FileCache(CACHED_REPLAYS)
        self._reported: set[str] = set()
        self._listing = threading.RLock()
        self._last_list: tuple[Listed, ...] = ()
        self._last_stamp: tuple | None = None
        self._last_listed = 0.0

    def start(
        self, preset: Preset, *, name: str | None = None, owner: str | None = None, pairs: Path | None = None
    ) -> str:
        """Start a run, or queue it, and return its name.

        Args:
            pairs: the file of the task's own pairs, if it has any.

        Raises:
            ConfigError: the file of own pairs is missing or holds other pairs.
            RunError: there is a run of that name, or it cannot be written.
        """
        try:
            folder = RunFolder.create(self.root, preset, name=name, pairs=pairs)
            if owner is not None:
                write_ownership(folder, Ownership(owner=owner))
            self._slots.add(folder, preset, owner)
        except OSError as error:
            raise RunError(f"the run cannot be started: {explain_error(error)}") from error
        return folder.name

    def import_file(self, file: Path, *, max_bytes: int, name: str | None = None, owner: str | None = None) -> str:
        """Make a finished run of a file and return its name.

        Raises:
            CheckpointError: it is not the file of a run, or not a sound one.
            ConfigError: its model is larger than the limits allow.
            RunError: it cannot be written.
        """
        try:
            folder = import_run(self.root, file, name=name, max_bytes=max_bytes, max_pairs=self.limits.max_pairs)
            try:
                self.limits.check_size(folder.preset(), pairs=folder.pairs)
                if owner is not None:
                    write_ownership(folder, Ownership(owner=owner))
            except BaseException:
                shutil.rmtree(folder.path, ignore_errors=True)
                raise
        except OSError as error:
            raise RunError(f"the run cannot be taken in: {explain_error(error)}") from error
        return folder.name

    def stop(self, name: str, *, reason: str = "") -> None:
        """Ask a run to stop after its present step; one that waits in the queue stops at once.

        Args:
            reason: what its owner reads, where it was not they who asked.

        Raises:
            RunError: this process does not train it.
        """
        self._slots.stop(name, reason=reason)

    def resume(self, name: str) -> None:
        """Continue a stopped, failed or interrupted run from its last saved state.

        Raises:
            RunError: there is no such run, it is training already, or has no steps left; or it cannot be written.
        """
        folder = RunFolder(self.root, name)
        check_resumable(folder)
        try:
            self._slots.add(folder, folder.preset(), self.ownership(name).owner)
        except OSError as error:
            raise RunError(f"run={name!r} cannot be resumed: {explain_error(error)}") from error

    def delete(self, name: str) -> None:
        """Delete a run and all its files, for good.

        Raises:
            RunError: there is no such run, it came with the program, or it is training or waiting.
        """
        folder = RunFolder(self.root, name)
        if self._slots.forget(name) and not folder.exists():
            return
        if self.info(name).shipped:
            raise RunError(f"run={name!r} came with the program, so it cannot be deleted here")
        lock = folder.lock()
        gone = self.root / f".{name}.deleted"
        try:
            folder.path.rename(gone)
        except OSError as error:
            raise RunError(f"run={name!r} cannot be deleted: {explain_error(error)}") from error
        finally:
            lock.release()
        shutil.rmtree(gone, ignore_errors=True)
        _log.info("deleted", extra={"run": name})

    def share(self, name: str, shared: bool) -> None:
        """Let others look at a run, or no more; RunError if there is no such run, or it cannot be written."""
        folder = self.folder(name)
        try:
            write_ownership(folder, self.ownership(name).model_copy(update={"shared": shared}))
        except OSError as error:
            raise RunError(f"run={name!r} cannot be shared: {explain_error(error)}") from error
        self._last_stamp = None

    def names(self) -> list[str]:
        """Return the names of all runs that can be read, newest first, shipped ones last."""
        return [each.name for each in self.listings()]

    def listings(self) -> tuple[Listed, ...]:
        """Return all runs that can be read, newest first, shipped ones last.

        Every open page asks for them each second, so what was found is given again for a second, unless runs came or
        went meanwhile.
        """
        with self._listing, suppress(FileNotFoundError):
            stamp = (self.root.stat().st_mtime_ns, tuple(self._slots.names()))
            if self._last_stamp != stamp or time.monotonic() - self._last_listed > SECONDS_OF_A_LIST:
                self._last_list, self._last_stamp = self._list(), stamp
                self._last_listed = time.monotonic()
            return self._last_list
        return self._list()

    def _list(self) -> tuple[Listed, ...]:
        found = [folder.name for folder in list_runs(self.root)]
        deleted = [name for name in self._slots.names() if name not in found]  # their folders, by somebody else
        readable = filter(self._is_readable, [*deleted, *found])
        every = [Listed(name, self.ownership(name), self.info(name).shipped) for name in readable]
        return tuple(sorted(every, key=lambda each: each.shipped))

    def folder(self, name: str) -> RunFolder:
        """Return a run's folder; RunError if there is no such run."""
        self.info(name)
        return RunFolder(self.root, name)

    def ownership(self, name: str) -> Ownership:
        """Return whose a run is; RunError if the name is none a run can have."""
        folder, live = RunFolder(self.root, name), self._slots.known(name)
        written = self._ownerships.get(path_of_ownership(folder), lambda: read_ownership(folder))
        return written if live is None else written.model_copy(update={"owner": live.owner})  # its files may be gone

    def preset(self, name: str) -> Preset:
        """Return the preset a run was started with; RunError if there is no such run."""
        live = self._slots.known(name)
        if live is not None:
            return live.preset
        folder = RunFolder(self.root, name)
        return self._presets.get(folder.path / "preset.yaml", folder.ensure_preset)

    def info(self, name: str) -> RunInfo:
        """Return a run's status and figures; RunError if there is no such run."""
        live = self._slots.known(name)
        if live is not None:
            stopping = live.stop.is_set() and live.info.status in ACTIVE
            return live.info.model_copy(update={"status": "stopping"}) if stopping else live.info
        folder = RunFolder(self.root, name)
        info = self._infos.get(folder.path / "run.json", folder.written_info)
        return folder.with_verified_status(info)

    def progress(self, name: str) -> RunProgress:
        """Return where a run stands; RunError if there is no such run."""
        steps, info, live = self.preset(name).training.steps, self.info(name), self._slots.live(name)
        if live is None:
            return RunProgress(info, steps)
        rate = live.steps_per_second() if info.status in ACTIVE else None  # its thread may outlive its training
        return RunProgress(info, steps, self._slots.queue_position(name), rate)

    def active(self) -> list[LiveRun]:
        """Return the runs that train or wait here."""
        return self._slots.active()

    def counts(self) -> dict[str, int]:
        """Return how many runs train here, and how many wait."""
        return self._slots.counts()

    def history(self, name: str) -> History:
        """Return a run's figures; RunError if there is no such run."""
        live = self._slots.known(name)
        if live is not None:
            return live.history
        folder, steps = RunFolder(self.root, name), self.preset(name).training.steps
        return self._histories.get(folder.metrics, lambda: History.load(folder.metrics, steps))

    def replay(self, name: str) -> Replay:
        """Return a run's attention over its training; RunError if there is no such run."""
        live = self._slots.known(name)
        if live is not None:
            return live.replay
        folder, every = RunFolder(self.root, name), self.preset(name).training.evaluate_every
        return self._replays.get(folder.replay, lambda: Replay.load(folder.replay, every))

    def loaded(self, name: str) -> LoadedRun:
        """Return a model of a run to decode with: a training run's latest weights, else its best.

        Raises:
            RunError: there is no such run, or it has no weights yet.
        """
        folder, live = RunFolder(self.root, name), self._slots.known(name)
        is_over = live is not None and live.info.status not in ACTIVE  # though its thread may still be there
        if live is not None and live.latest_weights is not None and not (is_over and folder.best.exists()):
            return self._models.latest(live)
        if not folder.best.exists():
            raise RunError(f"run={name!r} has no weights yet; it is {self.info(name).status}")
        return self._models.best(folder)

    def has_weights(self, name: str) -> bool:
        """Tell whether ``loaded`` has a model of a run to give; RunError if the name is none a run can have."""
        live = self._slots.known(name)
        return (live is not None and live.latest_weights is not None) or RunFolder(self.root, name).best.exists()

    def close(self, *, seconds: float = 5.0) -> None:
        """Stop all runs and wait for them to be saved; for the end of the process."""
        self._slots.close(seconds=seconds)

    def _is_readable(self, name: str) -> bool:
        try:
            self.info(name)
            self.preset(name)
        except RunError as error:
            if name not in self._reported:  # once: the page asks every second
                self._reported.add(name)
                _log.warning("left out of the list: %s", error)
            return False
        return True
