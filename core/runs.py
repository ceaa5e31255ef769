"""Runs in background threads: start, stop, resume, watch, list. The server owns them, not the page."""

import logging
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from core.bugs import bug_of
from core.checkpoint import CheckpointError, load_weights
from core.config import Preset
from core.file_cache import FileCache
from core.history import History
from core.live_run import LiveRun
from core.models import Seq2Seq, build_model
from core.replay import Replay
from core.run_folder import ACTIVE, RunError, RunFolder, RunInfo, check_resumable, list_runs
from core.tasks import Task, build_task

CACHED_FILES = 500
CACHED_HISTORIES = 16
CACHED_REPLAYS = 8
CACHED_MODELS = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """A model to look into, apart from the one in training: its weights as they were after ``step`` updates.

    Attributes:
        kind: "latest" of a run in training, "best" (lowest validation loss) of any other.
    """

    run: str
    kind: Literal["latest", "best"]
    step: int
    preset: Preset
    task: Task
    model: Seq2Seq


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        steps: how many it is to make in all.
        place: in the queue, from 1; None when it does not wait.
        steps_per_second: over the last seconds; None when it does not train here.
    """

    info: RunInfo
    steps: int
    place: int | None = None
    steps_per_second: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time to the last step at the present rate, evaluations included."""
        return (self.steps - self.info.step) / self.steps_per_second if self.steps_per_second else None


class Runs:
    """All runs below one folder: those this process trains, those that wait, and those on disk.

    Args:
        root: the folder, such as ``checkpoints``.
        max_active: how many train at once; others wait in a queue, first come first served.
        threads: torch threads of each.
    """

    def __init__(self, root: Path, *, max_active: int = 2, threads: int = 1) -> None:
        self.root, self.max_active, self.threads = root, max_active, threads
        self._live: dict[str, LiveRun] = {}
        self._waiting: deque[str] = deque()
        self._training: dict[str, threading.Thread] = {}
        self._lock = threading.RLock()
        self._presets: FileCache[Preset] = FileCache(CACHED_FILES)
        self._infos: FileCache[RunInfo] = FileCache(CACHED_FILES)
        self._histories: FileCache[History] = FileCache(CACHED_HISTORIES)
        self._replays: FileCache[Replay] = FileCache(CACHED_REPLAYS)
        self._best: FileCache[Published] = FileCache(CACHED_MODELS)
        self._reported: set[str] = set()
        self._latest: OrderedDict[str, Published] = OrderedDict()

    def start(self, preset: Preset, *, name: str | None = None) -> str:
        """Start a run, or queue it, and return its name.

        Raises:
            RunError: there is a run of that name.
        """
        folder = RunFolder.create(self.root, preset, name=name)
        self._enqueue(folder)
        return folder.name

    def stop(self, name: str) -> None:
        """Ask a run to stop after its present step; one that waits in the queue stops at once.

        Raises:
            RunError: this process does not train it.
        """
        with self._lock:
            live = self._live.get(name)
            if live is None:
                raise RunError(f"run={name[:60]!r} is not training here, so it cannot be stopped")
            live.stop.set()
            if name in self._waiting:
                self._waiting.remove(name)
                live.folder.write_info(live.info.model_copy(update={"status": "stopped"}))
                self._forget(name)

    def resume(self, name: str) -> None:
        """Continue a stopped, failed or interrupted run from its last saved state.

        Raises:
            RunError: there is no such run, it is training already, or has no steps left.
        """
        folder = RunFolder(self.root, name)
        check_resumable(folder)
        self._enqueue(folder)

    def names(self) -> list[str]:
        """Return the names of all runs that can be read, newest first, shipped ones last."""
        readable = [folder.name for folder in list_runs(self.root) if self._is_readable(folder.name)]
        return sorted(readable, key=lambda name: self.info(name).shipped)

    def preset(self, name: str) -> Preset:
        """Return the preset a run was started with; RunError if there is no such run."""
        folder = RunFolder(self.root, name)
        return self._presets.get(folder.path / "preset.yaml", folder.preset)

    def info(self, name: str) -> RunInfo:
        """Return a run's status and figures; RunError if there is no such run."""
        live = self._live.get(name)
        if live is not None:
            return live.info.model_copy(update={"status": "stopping"}) if live.stop.is_set() else live.info
        folder = RunFolder(self.root, name)
        info = self._infos.get(folder.path / "run.json", folder.written_info)
        return folder.with_true_status(info)

    def progress(self, name: str) -> Progress:
        """Return where a run stands; RunError if there is no such run."""
        steps = self.preset(name).training.steps
        live = self._live.get(name)
        if live is None:
            return Progress(self.info(name), steps)
        with self._lock:
            place = self._waiting.index(name) + 1 if name in self._waiting else None
        info = self.info(name)
        rate = live.steps_per_second() if info.status in ACTIVE else None  # its thread may outlive its training
        return Progress(info, steps, place, rate)

    def history(self, name: str) -> History:
        """Return a run's figures; RunError if there is no such run."""
        live = self._live.get(name)
        if live is not None:
            return live.history
        folder, steps = RunFolder(self.root, name), self.preset(name).training.steps
        return self._histories.get(folder.metrics, lambda: History.load(folder.metrics, steps))

    def replay(self, name: str) -> Replay:
        """Return a run's attention over its training; RunError if there is no such run."""
        live = self._live.get(name)
        if live is not None:
            return live.replay
        folder, every = RunFolder(self.root, name), self.preset(name).training.evaluate_every
        return self._replays.get(folder.replay, lambda: Replay.load(folder.replay, every))

    def published(self, name: str) -> Published:
        """Return a model of a run to decode with: a training run's latest weights, else its best.

        Raises:
            RunError: there is no such run, or it has no weights yet.
        """
        live = self._live.get(name)
        if live is not None and live.published is not None:
            return self._latest_of(live)
        folder, preset = RunFolder(self.root, name), self.preset(name)
        if not folder.best.exists():
            raise RunError(f"run={name!r} has no weights yet; it is {self.info(name).status}")
        return self._best.get(folder.best, lambda: _load_best(folder, preset))

    def has_weights(self, name: str) -> bool:
        """Tell whether ``published`` has a model of a run to give; RunError if the name is none a run can have."""
        live = self._live.get(name)
        return (live is not None and live.published is not None) or RunFolder(self.root, name).best.exists()

    def close(self, *, seconds: float = 5.0) -> None:
        """Stop all runs and wait for them to be saved; for the end of the process."""
        with self._lock:
            for name in list(self._live):
                self.stop(name)
            threads = list(self._training.values())
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _enqueue(self, folder: RunFolder) -> None:
        lock = folder.lock()
        try:
            folder.write_info(folder.info().model_copy(update={"status": "queued", "message": ""}))
            live = LiveRun(folder, self.preset(folder.name), lock)
        except BaseException:
            lock.release()
            raise
        with self._lock:
            self._live[folder.name] = live
            self._waiting.append(folder.name)
            self._fill_slots()

    def _fill_slots(self) -> None:
        while self._waiting and len(self._training) < self.max_active:
            name = self._waiting.popleft()
            thread = threading.Thread(target=self._work, args=(name,), name=f"train {name}", daemon=True)
            self._training[name] = thread
            thread.start()

    def _work(self, name: str) -> None:
        try:
            self._live[name].train(self.threads)
        finally:
            with self._lock:
                del self._training[name]
                self._forget(name)
                self._fill_slots()

    def _forget(self, name: str) -> None:
        self._latest.pop(name, None)
        self._live.pop(name).lock.release()

    def _latest_of(self, live: LiveRun) -> Published:
        name, (step, weights) = live.folder.name, live.published
        with self._lock:
            known = self._latest.get(name)
        if known is not None and known.step == step:
            return known
        published = _built(name, "latest", step, live.preset)
        published.model.load_state_dict(weights)
        with self._lock:
            if name in self._live:
                self._latest[name] = published
        return published

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


def _built(name: str, kind: Literal["latest", "best"], step: int, preset: Preset) -> Published:
    task = build_task(preset.task)
    model = bug_of(preset).on_model(build_model(preset.model, task, torch.Generator()))
    return Published(name, kind, step, preset, task, model.eval())


def _load_best(folder: RunFolder, preset: Preset) -> Published:
    published = _built(folder.name, "best", -1, preset)
    try:
        facts = load_weights(folder.best, published.model)
    except CheckpointError as error:
        raise RunError(f"run={folder.name!r}: {error}") from error
    return replace(published, step=facts["step"])
