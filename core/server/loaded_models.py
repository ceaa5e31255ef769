"""Cache of loaded models: best, latest and earlier weights of runs, built once and shared by all requests."""

import threading
from collections import OrderedDict
from pathlib import Path

import torch

from core.config import Preset
from core.runs import LoadedRun, RunError, RunFolder, load_run
from core.runs.load import build_run
from core.runs.weights_by_step import WeightsByStep
from core.server.live import LiveRun
from core.storage.cache import FileCache

CACHED_MODELS = 64  # a class of fifty has as many runs open
MAX_CACHED_BYTES = 1_000_000_000  # of weight files; a model that was imported may have 300 MB
CACHED_EARLIER_MODELS = 8  # of at most 3 MB, see weights_by_step


class LoadedModels:
    """The most recently used models, at most ``CACHED_MODELS`` of a kind, or ``CACHED_EARLIER_MODELS``. Thread-safe."""

    def __init__(self) -> None:
        self._best: FileCache[LoadedRun] = FileCache(CACHED_MODELS, max_bytes=MAX_CACHED_BYTES)
        self._latest: OrderedDict[LiveRun, LoadedRun] = OrderedDict()
        self._earlier: OrderedDict[tuple[Path, int], tuple[dict[str, torch.Tensor], LoadedRun]] = OrderedDict()
        self._lock = threading.Lock()

    def best(self, folder: RunFolder) -> LoadedRun:
        """Return a saved run's best model; RunError if its weights are damaged."""
        return self._best.get(folder.best, lambda: load_run(folder.path))

    def latest(self, live: LiveRun) -> LoadedRun:
        """Return the latest model of a run in training; RunError if it has no weights yet."""
        step, weights = live.latest_weights()
        with self._lock:
            cached = self._latest.get(live)
        if cached is not None and cached.step == step:
            return cached
        loaded = build_run(live.folder, live.preset, weights, kind="latest", step=step)
        with self._lock:
            self._latest[live] = loaded
            self._latest.move_to_end(live)
            while len(self._latest) > CACHED_MODELS:
                self._latest.popitem(last=False)
        return loaded

    def at_step(self, folder: RunFolder, preset: Preset, weights_by_step: WeightsByStep, step: int) -> LoadedRun:
        """Return a run's model after an earlier training step.

        Raises:
            RunError: no weights of that step were kept.
            CheckpointError: the weights do not fit the model.
        """
        weights = weights_by_step.at(step)
        if weights is None:
            kept = ", ".join(map(str, weights_by_step.steps)) or "no step"
            raise RunError(f"training_step={step} is not one whose weights run={folder.name!r} kept: {kept}")
        key = (folder.path, step)
        with self._lock:
            if key in self._earlier and self._earlier[key][0] is weights:
                self._earlier.move_to_end(key)
                return self._earlier[key][1]
        loaded = build_run(folder, preset, weights, kind="kept", step=step, label=f"the file of weights at step {step}")
        with self._lock:
            self._earlier[key] = weights, loaded
            self._earlier.move_to_end(key)
            while len(self._earlier) > CACHED_EARLIER_MODELS:
                self._earlier.popitem(last=False)
        return loaded

    def forget(self, live: LiveRun) -> None:
        """Drop the latest model of a run whose training has ended."""
        with self._lock:
            self._latest.pop(live, None)
