"""Models to look into: copies of what runs have learned so far, built once for all who ask."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal

import torch

from core.bugs import bug_of
from core.config import Preset
from core.files.cache import FileCache
from core.files.tensor_file import CheckpointError
from core.models import Seq2Seq, build_model
from core.run_folder import RunError, RunFolder
from core.run_folder.recording import load_best
from core.runs.live import LiveRun
from core.tasks import Task, build_task

CACHED_MODELS = 16


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


class PublishedModels:
    """The models that were last asked for."""

    def __init__(self) -> None:
        self._best: FileCache[Published] = FileCache(CACHED_MODELS)
        self._latest: OrderedDict[LiveRun, Published] = OrderedDict()
        self._lock = threading.Lock()

    def best(self, folder: RunFolder, preset: Preset) -> Published:
        """Return the best model of a run that is kept on disk; RunError if its weights are damaged."""
        return self._best.get(folder.best, lambda: _load_best(folder, preset))

    def latest(self, live: LiveRun) -> Published:
        """Return the latest published weights of a run in training, which must have some, as a model."""
        step, weights = live.published
        with self._lock:
            known = self._latest.get(live)
        if known is not None and known.step == step:
            return known
        published = _built(live.folder.name, "latest", step, live.preset)
        published.model.load_state_dict(weights)
        with self._lock:
            self._latest[live] = published
            self._latest.move_to_end(live)
            while len(self._latest) > CACHED_MODELS:
                self._latest.popitem(last=False)
        return published

    def forget(self, live: LiveRun) -> None:
        """Drop the latest model of a run that trains no more."""
        with self._lock:
            self._latest.pop(live, None)


def _built(name: str, kind: Literal["latest", "best"], step: int, preset: Preset) -> Published:
    task = build_task(preset.task)
    model = bug_of(preset).on_model(build_model(preset.model, task, torch.Generator()))
    return Published(name, kind, step, preset, task, model.eval())


def _load_best(folder: RunFolder, preset: Preset) -> Published:
    published = _built(folder.name, "best", -1, preset)
    try:
        facts = load_best(folder, published.model)
    except CheckpointError as error:
        raise RunError(f"run={folder.name!r}: {error}") from error
    return replace(published, step=facts["step"])
