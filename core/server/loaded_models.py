"""Models to look into: copies of what runs have learned so far, built once for all who ask."""

import threading
from collections import OrderedDict

from core.runs import RunFolder
from core.runs.load import LoadedRun, build_run, load_run
from core.server.live import LiveRun
from core.storage.cache import FileCache

CACHED_MODELS = 16


class LoadedModels:
    """The models that were last asked for."""

    def __init__(self) -> None:
        self._best: FileCache[LoadedRun] = FileCache(CACHED_MODELS)
        self._latest: OrderedDict[LiveRun, LoadedRun] = OrderedDict()
        self._lock = threading.Lock()

    def best(self, folder: RunFolder) -> LoadedRun:
        """Return the best model of a run that is kept on disk; RunError if its weights are damaged."""
        return self._best.get(folder.best, lambda: load_run(folder.path))

    def latest(self, live: LiveRun) -> LoadedRun:
        """Return the latest weights of a run in training, which must have some, as a model."""
        step, weights = live.latest_weights
        with self._lock:
            known = self._latest.get(live)
        if known is not None and known.step == step:
            return known
        loaded = build_run(live.folder, live.preset, weights, kind="latest", step=step)
        with self._lock:
            self._latest[live] = loaded
            self._latest.move_to_end(live)
            while len(self._latest) > CACHED_MODELS:
                self._latest.popitem(last=False)
        return loaded

    def forget(self, live: LiveRun) -> None:
        """Drop the latest model of a run that trains no more."""
        with self._lock:
            self._latest.pop(live, None)
