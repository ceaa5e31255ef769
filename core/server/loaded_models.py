"""Cache of loaded models: the best and the latest weights of runs, built once and shared by all requests."""

import threading
from collections import OrderedDict

from core.runs import LoadedRun, RunFolder, load_run
from core.runs.load import build_run
from core.server.live import LiveRun
from core.storage.cache import FileCache

CACHED_MODELS = 16


class LoadedModels:
    """The most recently used models, at most ``CACHED_MODELS`` of each kind. Thread-safe."""

    def __init__(self) -> None:
        self._best: FileCache[LoadedRun] = FileCache(CACHED_MODELS)
        self._latest: OrderedDict[LiveRun, LoadedRun] = OrderedDict()
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

    def forget(self, live: LiveRun) -> None:
        """Drop the latest model of a run whose training has ended."""
        with self._lock:
            self._latest.pop(live, None)
