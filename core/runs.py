"""Runs in background threads: start, stop, resume, watch, list. The server owns them, not the page."""

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from core.checkpoint import CheckpointError, load_weights
from core.config import Preset
from core.history import History
from core.models import Seq2Seq, build_model
from core.recording import continued_state, copy_of_weights, train_recorded
from core.run_folder import RunError, RunFolder, RunInfo, Status, check_resumable, list_runs
from core.tasks import Task, build_task
from core.training import EvaluationEvent, Event, StepEvent, TrainingState

SECONDS_BETWEEN_PUBLICATIONS = 0.5
RATE_WINDOW_SECONDS = 5.0
CACHED_MODELS = 16


@dataclass(frozen=True)
class Published:
    """A model to look into, apart from the one in training: weights as they were after ``step`` updates."""

    run: str
    step: int
    preset: Preset
    task: Task
    model: Seq2Seq


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        place: in the queue, from 1; None when it does not wait.
        steps_per_second: over the last seconds; None when it does not train.
        seconds_left: at that rate.
    """

    info: RunInfo
    steps: int
    place: int | None = None
    steps_per_second: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time to the last step at the present rate, evaluations included."""
        return (self.steps - self.info.step) / self.steps_per_second if self.steps_per_second else None


class LiveRun:
    """A run that this process trains, or is about to."""

    def __init__(self, folder: RunFolder, preset: Preset, lock: FileLock) -> None:
        self.folder, self.preset, self.lock = folder, preset, lock
        self.stop = threading.Event()
        self.info = folder.info()
        self.history = History.load(folder.metrics, preset.training.steps)
        self.weights: dict[str, torch.Tensor] | None = None
        self.weights_step = -1
        self._published = 0.0
        self._times: deque[tuple[float, int]] = deque()

    def train(self, threads: int) -> None:
        """Train to the end or until stopped; runs in a thread of its own."""
        if self.stop.is_set():
            self.folder.write_info(self.info.model_copy(update={"status": "stopped"}))
            return
        torch.set_num_threads(threads)
        state = continued_state(self.folder)
        state.threads = threads
        self.history.rewind(state.step, evaluated_step=state.evaluated_step)
        self.info = train_recorded(
            self.folder,
            state,
            self.history,
            should_stop=self.stop.is_set,
            on_event=lambda event: self._watch(event, state),
        )

    def steps_per_second(self) -> float | None:
        """Return the rate over the last seconds, or None before there are two moments to compare."""
        times = list(self._times)
        if len(times) < 2 or times[-1][1] == times[0][1]:
            return None
        return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])

    def _watch(self, event: Event, state: TrainingState) -> None:
        now = time.monotonic()
        if isinstance(event, StepEvent):
            self._times.append((now, event.step))
            while now - self._times[0][0] > RATE_WINDOW_SECONDS:
                self._times.popleft()
        exact_match = state.last_evaluation.exact_match if state.last_evaluation else None
        status: Status = "stopping" if self.stop.is_set() else "training"
        self.info = self.info.model_copy(
            update={
                "status": status,
                "step": state.step,
                "exact_match": exact_match,
                "best_step": state.best_step if state.best_step >= 0 else None,
                "seconds": state.seconds,
            }
        )
        if isinstance(event, EvaluationEvent) or now - self._published > SECONDS_BETWEEN_PUBLICATIONS:
            self.weights, self.weights_step = copy_of_weights(state.model), state.step
            self._published = now


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
        self._histories: OrderedDict[str, tuple[tuple, History]] = OrderedDict()
        self._models: OrderedDict[tuple, Published] = OrderedDict()

    def start(self, preset: Preset, *, name: str | None = None) -> str:
        """Start a run, or queue it, and return its name.

        Raises:
            RunError: there is a run of that name.
        """
        folder = RunFolder.create(self.root, preset, name=name)
        self._enqueue(folder, preset)
        return folder.name

    def stop(self, name: str) -> None:
        """Ask a run to stop after its present step; one that waits in the queue stops at once.

        Raises:
            RunError: this process does not train it.
        """
        with self._lock:
            live = self._live.get(name)
            if live is None:
                raise RunError(f"run={name!r} is not training here, so it cannot be stopped")
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
        self._enqueue(folder, folder.preset())

    def names(self) -> list[str]:
        """Return the names of all runs, newest first, shipped ones last."""
        folders = list_runs(self.root)
        return [folder.name for folder in sorted(folders, key=lambda folder: self._info(folder).shipped)]

    def preset(self, name: str) -> Preset:
        """Return the preset a run was started with; RunError if there is no such run."""
        return RunFolder(self.root, name).preset()

    def progress(self, name: str) -> Progress:
        """Return where a run stands; RunError if there is no such run."""
        folder = RunFolder(self.root, name)
        live = self._live.get(name)
        if live is None:
            return Progress(folder.info(), folder.preset().training.steps)
        with self._lock:
            place = self._waiting.index(name) + 1 if name in self._waiting else None
        info = live.info.model_copy(update={"status": "stopping"}) if live.stop.is_set() else live.info
        return Progress(info, live.preset.training.steps, place, live.steps_per_second())

    def history(self, name: str) -> History:
        """Return a run's figures; RunError if there is no such run."""
        live = self._live.get(name)
        if live is not None:
            return live.history
        folder = RunFolder(self.root, name)
        steps = folder.preset().training.steps
        stamp = _stamp(folder.metrics)
        with self._lock:
            if self._histories.get(name, (None,))[0] != stamp:
                self._histories[name] = (stamp, History.load(folder.metrics, steps))
            return _used(self._histories, name, CACHED_MODELS)[1]

    def published(self, name: str) -> Published:
        """Return a model of a run to decode with: a training run's latest weights, else its best.

        Raises:
            RunError: there is no such run, or it has no weights yet.
        """
        live = self._live.get(name)
        folder = RunFolder(self.root, name)
        weights = live.weights if live else None
        key = (name, live.weights_step) if weights else (name, _stamp(folder.best))
        with self._lock:
            if key in self._models:
                return _used(self._models, key, CACHED_MODELS)
        published = _build(folder, weights, live.weights_step if live else -1)
        with self._lock:
            self._models[key] = published
            return _used(self._models, key, CACHED_MODELS)

    def close(self, *, seconds: float = 5.0) -> None:
        """Stop all runs and wait for them to be saved; for the end of the process."""
        with self._lock:
            for name in list(self._live):
                self.stop(name)
            threads = list(self._training.values())
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _enqueue(self, folder: RunFolder, preset: Preset) -> None:
        lock = folder.lock()
        try:
            lock.acquire()
        except Timeout as error:
            raise RunError(f"run={folder.name!r} is training in another process") from error
        folder.write_info(folder.info().model_copy(update={"status": "queued", "message": ""}))
        with self._lock:
            self._live[folder.name] = LiveRun(folder, preset, lock)
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
        self._live.pop(name).lock.release()

    def _info(self, folder: RunFolder) -> RunInfo:
        live = self._live.get(folder.name)
        return live.info if live else folder.info()


def _build(folder: RunFolder, weights: dict[str, torch.Tensor] | None, step: int) -> Published:
    preset = folder.preset()
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator()).eval()
    if weights is not None:
        model.load_state_dict(weights)
        return Published(folder.name, step, preset, task, model)
    if not folder.best.exists():
        raise RunError(f"run={folder.name!r} has no weights yet: {folder.info().status}")
    try:
        facts = load_weights(folder.best, model)
    except CheckpointError as error:
        raise RunError(f"run={folder.name!r}: {error}") from error
    return Published(folder.name, facts["step"], preset, task, model)


def _stamp(path: Path) -> tuple:
    """Return what changes whenever a file is replaced or grows."""
    if not path.exists():
        return ()
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _used(cache: OrderedDict, key: object, size: int) -> object:
    """Return a cached value as the most recently used, dropping the least recently used ones."""
    cache.move_to_end(key)
    while len(cache) > size:
        cache.popitem(last=False)
    return cache[key]
