"""All runs of a server: start, stop, resume, watch and list them. The server owns them, not the page."""

import logging
import os
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.config import ConfigError, Preset
from core.config.listing import listed_presets, missing_package
from core.runs import Run, RunError, RunFolder, check_resumable
from core.runs import run as saved
from core.runs.imported_tokens import Languages
from core.runs.importing import import_run
from core.runs.importing_models import import_model
from core.runs.names import Naming
from core.runs.starting import Start
from core.server.classes import Classes
from core.server.estimates import Estimates
from core.server.inference_priority import InferencePriority
from core.server.limits import LAPTOP, Limits
from core.server.live import LiveRun
from core.server.ownership import Ownership, ownership_file, read_ownership, write_ownership
from core.server.queue import NO_POOL
from core.server.run_index import RunIndex, RunListing
from core.server.sweeps import Sweeps
from core.server.training_process import IS_SUPPORTED, TrainingProcesses, nothing_to_prepare
from core.server.waiting_times import WaitingTimes
from core.server.workers import WorkerPool
from core.storage.cache import FileCache
from core.storage.error_messages import explain_error
from core.storage.tensor_file import MAX_HEADER_BYTES

CLASSES = ".classes"  # folder beside the runs; no run can have this name
AFTER_CLASS = "stopped and saved because you are no longer in the class"
REMEMBERED_NAMES = 10_000  # names of deleted runs, whose numbers are not given again
LISTING_CACHE_SECONDS = 1.0
SECONDS_BETWEEN_OPENINGS = 3600.0  # of a shared run that are recorded
MAX_LISTING_SHARE = 0.05  # of the time that may go into listing thousands of runs again
CHECKED_PRESETS = 100  # of the newest runs, all that a list on the page shows; 10,000 would take minutes
PAUSE_AFTER_START = 3.0  # seconds of a new run in which no training time is measured: its first steps are watched
_log = logging.getLogger(__name__)


class Runs(saved.Runs):
    """All runs in one folder: in training, queued, and saved on disk. ``runs[name]`` is a ``LiveRun`` of the first two.

    Thread-safe.

    Args:
        root: the folder, such as ``checkpoints``.
        limits: how many runs train at the same time (others are queued, see ``RunQueue``), and all other limits.
        threads: torch threads per run.
        device: the device that runs train on: "cpu", "cuda" or "mps". Inputs are decoded on the CPU.
        in_processes: whether each run trains in a process of its own, which may crash or run out of memory alone; else,
            and where that is not supported, in a thread of this process.
        prepare_process: called first in each of these processes, for example to load plugins; a function of a module,
            or a ``partial``.

    Attributes:
        inference_priority: hold it while computing with a run's model.
        estimates: how long presets would train here.
        sweeps: the sweeps in the folder.
        classes: classes of visitors, see ``core.server.classes``.
    """

    def __init__(
        self,
        root: Path,
        *,
        limits: Limits = LAPTOP,
        threads: int = 1,
        device: str = "cpu",
        in_processes: bool = False,
        prepare_process: Callable[[], None] = nothing_to_prepare,
    ) -> None:
        super().__init__(root)
        self.limits, self.device = limits, device
        self.inference_priority = InferencePriority()
        self._processes = TrainingProcesses(prepare_process) if in_processes and IS_SUPPORTED else None
        self._pool = WorkerPool(
            max_workers=limits.max_runs,
            max_per_owner=limits.max_training_per_visitor,
            threads=threads,
            device=device,
            inference_priority=self.inference_priority,
            processes=self._processes,
            cache=self.cache,
            seconds_to_start=lambda name: self._waiting_times.seconds_to_start(name),
        )
        self.estimates = Estimates(
            lambda: self._pool.counts()["training"] + len(self.sweeps.training()),
            max_runs=limits.max_runs,
            device=device,
            wait_for_inference=self.inference_priority.wait_for_inference,
        )
        self.sweeps = Sweeps(root, busy_cores=lambda: self._pool.counts()["training"])
        self._waiting_times = WaitingTimes(self._pool, self.estimates, max_workers=limits.max_runs)
        self.classes = Classes(root / CLASSES, limits, on_left=self.stop_in_class)
        self._ownerships: FileCache[Ownership] = FileCache(saved.CACHED_FILES)
        self._deleted: deque[tuple[str | None, str]] = deque(maxlen=REMEMBERED_NAMES)  # owner and name
        self._reported: set[str] = set()
        self._listing_lock = threading.RLock()
        self._cached_listings: tuple[RunListing, ...] = ()
        self._listing_stamp: tuple | None = None
        self._listed_at = self._listing_seconds = 0.0
        self._index = RunIndex(root)
        self._closing = threading.Event()

    def __getitem__(self, name: str) -> Run:
        """Return a run, as it is now: in training or queued here, or on disk. ``name`` may be untrusted input.

        Raises:
            RunError: the name is not valid, or there is no such run.
        """
        live = self._pool.find(name)
        return super().__getitem__(name) if live is None else live

    def __contains__(self, name: object) -> bool:
        return self._pool.find(str(name)) is not None or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all readable runs, newest first, shipped ones last."""
        return (each.name for each in self.listings())

    def __len__(self) -> int:
        return len(self.listings())

    def warm_up(self) -> None:
        """Prepare what the first visitors would wait for; it goes on after the call.

        These are processes that train, if runs train in such, and the sizes of shipped presets, if those are limited.
        """
        if self._processes is not None:
            self._processes.warm_up()
        # No daemon: PyTorch aborts a process that ends while such a thread computes.
        threading.Thread(target=self._check_shipped_presets, name="check shipped presets").start()

    def _check_shipped_presets(self) -> None:
        for preset in listed_presets():
            if missing_package(preset) is None and not self._closing.is_set():
                self.inference_priority.wait_for_inference()
                with suppress(ConfigError):  # shown where it is chosen
                    self.limits.check_size(preset)

    def start(
        self,
        preset: Preset,
        *,
        name: str | Naming | None = None,
        owner: str | None = None,
        pairs: Path | None = None,
        pool: str = NO_POOL,
        start: Start | None = None,
    ) -> str:
        """Create a run, start or queue it, and return its name.

        Args:
            name: see ``RunFolder.create``.
            pairs: the file of the task's own pairs, if it has any.
            pool: see ``LiveRun``.
            start: the weights of another run that it begins with; None for random ones.

        Raises:
            ConfigError: the file of own pairs is missing or holds other pairs.
            RunError: a run of that name exists, or it cannot be written; or the weights to begin with are missing.
        """
        self.estimates.pause(seconds=PAUSE_AFTER_START)
        contents = start.contents() if start else {}
        try:
            folder = RunFolder.create(self.root, preset, name=name, pairs=pairs, contents=contents)
            if owner is not None:
                write_ownership(folder, Ownership(owner=owner))
            self._pool.add(folder, preset, owner, pool)
        except OSError as error:
            raise RunError(f"the run cannot be started: {explain_error(error)}") from error
        return folder.name

    @contextmanager
    def draft_of_file(
        self, file: Path, *, max_bytes: int, max_header_bytes: int = MAX_HEADER_BYTES
    ) -> Iterator[RunFolder]:
        """Read an uploaded file, see ``core.runs.importing``, as a run that is not listed until ``adopt`` is called.

        Raises:
            CheckpointError: the file is not a run's, or it is damaged.
            ConfigError: its model is larger than the limits allow.
            RunError: the run cannot be written.
        """
        drafts = self.root / f".import.{secrets.token_hex(4)}.new"  # see ``delete_leftovers``
        sizes: dict[str, Any] = {"max_bytes": max_bytes, "max_header_bytes": max_header_bytes}
        try:
            try:
                draft = import_run(drafts, file, name="draft", max_pairs=self.limits.max_pairs, **sizes)
            except OSError as error:
                raise RunError(f"the run cannot be imported: {explain_error(error)}") from error
            self.limits.check_size(draft.read_preset(), pairs=draft.pairs)
            yield draft
        finally:
            shutil.rmtree(drafts, ignore_errors=True)

    def adopt(self, draft: RunFolder, *, name: str | Naming | None = None, owner: str | None = None) -> str:
        """List a run of ``draft_of_file`` from now on, and return its name; RunError if it cannot be written."""
        try:
            if owner is not None:
                write_ownership(draft, Ownership(owner=owner))
            folder = RunFolder.adopt(self.root, draft, name)
        except OSError as error:
            raise RunError(f"the run cannot be imported: {explain_error(error)}") from error
        self._listing_stamp = None
        return folder.name

    def import_file(self, file: Path, *, max_bytes: int, owner: str | None = None) -> str:
        """Import a run from an uploaded file and return its name; refused as ``draft_of_file`` and ``adopt``."""
        with self.draft_of_file(file, max_bytes=max_bytes) as draft:
            return self.adopt(draft, owner=owner)

    def import_model(
        self,
        source: Path,
        *,
        pairs: Path | None = None,
        mapping: str | None = None,
        languages: Languages = (None, None),
        name: str | Naming | None = None,
        on_phase: Callable[[str], None] = lambda phase: None,
    ) -> str:
        """Import another program's model from a path of this computer, and return the run's name.

        See ``core.runs.importing_models.import_model``. Only for the local user: anyone else could read their models.

        Raises:
            LabError: the model, the mapping or the pairs cannot be used, or the model is larger than the limits allow.
            RunError: the run cannot be written.
        """
        try:
            folder, _ = import_model(
                self.root, source, name=name, pairs=pairs, mapping=mapping, languages=languages, on_phase=on_phase
            )
            try:
                self.limits.check_size(folder.read_preset(), pairs=folder.pairs)
            except BaseException:
                shutil.rmtree(folder.path, ignore_errors=True)
                raise
        except OSError as error:
            raise RunError(f"the model cannot be imported: {explain_error(error)}") from error
        self._listing_stamp = None
        return folder.name

    def stop(self, name: str, *, reason: str = "") -> None:
        """Ask a run to stop after its current step; a queued one stops immediately, and one of a sweep with its trial.

        Args:
            reason: message for the owner, if it was not they who stopped it.

        Raises:
            RunError: this process is not training it.
        """
        if self.sweeps.stop_run(name):
            return
        self._pool.stop(name, reason=reason)

    def stop_in_class(self, owner: str, pool: str, *, reason: str = AFTER_CLASS) -> None:
        """Stop what a student of a class trains or has queued in it; without it, they would hold it from outside."""
        for live in self.active():
            if (live.owner, live.pool) == (owner, pool) and not live.stop.is_set():
                with suppress(RunError):  # it has just ended
                    self._pool.stop(live.folder.name, reason=reason)

    def resume(self, name: str, *, pool: str = NO_POOL) -> None:
        """Continue a stopped, failed or interrupted run from its last saved state.

        Args:
            pool: see ``LiveRun``.

        Raises:
            RunError: there is no such run, it is already training, it has no steps left, or it cannot be written.
        """
        folder = RunFolder(self.root, name)
        check_resumable(folder)
        try:
            self._pool.add(folder, folder.read_preset(), self.ownership(name).owner, pool)
        except OSError as error:
            raise RunError(f"run={name!r} cannot be resumed: {explain_error(error)}") from error

    def delete(self, name: str) -> None:
        """Delete a run and all its files permanently.

        Raises:
            RunError: there is no such run, it is shipped with the program, or it is training or queued.
        """
        folder = RunFolder(self.root, name)
        if self._pool.forget(name) and not folder.exists():
            return
        if self[name].info.shipped:
            raise RunError(f"run={name!r} is shipped with the program and cannot be deleted")
        owner = self.ownership(name).owner
        lock = folder.lock()
        deleted = self.root / f".{name}.{secrets.token_hex(4)}.deleted"  # see ``delete_leftovers``
        try:
            folder.path.rename(deleted)
        except OSError as error:
            raise RunError(f"run={name!r} cannot be deleted: {explain_error(error)}") from error
        finally:
            lock.release()
        self._deleted.append((owner, name))
        shutil.rmtree(deleted, ignore_errors=True)
        _log.info("deleted", extra={"run": name})

    def share(self, name: str, shared: bool) -> None:
        """Share a run with everyone who knows its name, or stop sharing; RunError if missing or not writable."""
        folder = self[name].folder
        try:
            write_ownership(folder, self.ownership(name).model_copy(update={"shared": shared}))
        except OSError as error:
            raise RunError(f"run={name!r} cannot be shared: {explain_error(error)}") from error
        self._listing_stamp = None

    def rename(self, name: str, title: str, *, others: Iterable[str] = ()) -> None:
        """Give a run another title, see ``RunFolder.rename``; RunError if missing, shipped or not writable."""
        try:
            self[name].folder.rename(title, others=others)
        except OSError as error:
            raise RunError(f"run={name!r} cannot be renamed: {explain_error(error)}") from error

    def count_bytes(self, names: Iterable[str]) -> int:
        """Return the size of the files of some runs in bytes, without those that have just been deleted."""
        total = 0
        for name in names:
            with suppress(RunError):
                total += self[name].size
        return total

    def note_opened(self, name: str) -> None:
        """Record that a shared run was opened, at most once an hour: the date of its ``access.json``."""
        file = ownership_file(RunFolder(self.root, name))
        with suppress(OSError):  # no longer there, or not writable
            if time.time() - file.stat().st_mtime > SECONDS_BETWEEN_OPENINGS:
                os.utime(file)

    def last_used(self, name: str) -> float:
        """Return when a run was last trained or, if it is shared, opened, in seconds since 1970; 0 if unknown."""
        folder, times = RunFolder(self.root, name), [0.0]
        files = [folder.path / "run.json", *([ownership_file(folder)] if self.ownership(name).shared else [])]
        for file in files:
            with suppress(OSError):
                times.append(file.stat().st_mtime)
        return max(times)

    def names_in_use(self, owner: str | None = None) -> Iterator[str]:
        """Yield names and titles of an owner's runs, also of deleted ones; of all runs if the owner is None."""
        for each in self.listings():
            if owner is None or each.ownership.owner == owner:
                yield from (each.name, self[each.name].title)
        yield from (name for whose, name in list(self._deleted) if owner in (None, whose))

    def listings(self) -> tuple[RunListing, ...]:
        """Return all readable runs, newest first, shipped ones last.

        Whether their presets are valid is checked for the newest ``CHECKED_PRESETS`` only; see ``is_readable``.
        Every open page polls this each second, so the result is cached for a second unless a run is added or removed,
        and for longer if there are thousands.
        """
        with self._listing_lock:
            try:
                stamp = (self.root.stat().st_mtime_ns, tuple(self._pool.names()))
            except FileNotFoundError:
                stamp = None
            cached_seconds = max(LISTING_CACHE_SECONDS, self._listing_seconds / MAX_LISTING_SHARE)
            age = time.monotonic() - self._listed_at
            if stamp is None or self._listing_stamp != stamp or age > cached_seconds:
                started = time.monotonic()
                self._cached_listings, self._listing_stamp = self._list(), stamp
                self._listed_at = time.monotonic()
                self._listing_seconds = self._listed_at - started
            return self._cached_listings

    def is_readable(self, name: str) -> bool:
        """Return whether a run's status and preset can be read; one that cannot is logged once."""
        try:
            run = self[name]
            _ = run.info, run.preset
        except RunError as error:
            if name not in self._reported:  # log it once: the page polls every second
                self._reported.add(name)
                _log.warning("not listed: %s", error)
            return False
        return True

    def _list(self) -> tuple[RunListing, ...]:
        every, failed_or_live = self._index.listings(), self._pool.names()
        if failed_or_live:
            on_disk = {each.name: each for each in every}
            for name in failed_or_live:  # the owner of one in training is known here, also if its folder was deleted
                if name in on_disk:
                    on_disk[name] = replace(on_disk[name], ownership=self.ownership(name))
            here = [RunListing(name, self.ownership(name), False) for name in failed_or_live if name not in on_disk]
            every = (*here, *on_disk.values())
        newest = [each for each in every[:CHECKED_PRESETS] if self.is_readable(each.name)]
        return (*newest, *every[CHECKED_PRESETS:])

    def ownership(self, name: str) -> Ownership:
        """Return a run's ownership; RunError if the name is not a valid run name."""
        folder, live = RunFolder(self.root, name), self._pool.find(name)
        stored = self._ownerships.get(ownership_file(folder), lambda: read_ownership(folder))
        return stored if live is None else stored.model_copy(update={"owner": live.owner})  # its folder may be gone

    def active(self) -> list[LiveRun]:
        """Return the runs that this process trains or has queued."""
        return self._pool.active()

    def queued(self) -> list[LiveRun]:
        """Return the runs that this process has queued, the next one first."""
        return self._pool.queued()

    def counts(self) -> dict[str, int]:
        """Return the number of runs in training and in the queue of this process."""
        return self._pool.counts()

    def close(self, *, seconds: float = 5.0) -> None:
        """Stop all runs and wait until they are saved; call it when the process ends."""
        deadline = time.monotonic() + seconds
        self._closing.set()
        self.sweeps.stop()
        self._pool.close(seconds=seconds)
        self.sweeps.close(seconds=max(0.0, deadline - time.monotonic()))
        self.estimates.close(seconds=max(0.0, deadline - time.monotonic()))
