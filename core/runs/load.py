"""Load a run's model from its folder: the one way that the command line, the page, exports and notebooks share."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import torch

from core.config import Preset
from core.models import Seq2Seq, build_model
from core.runs.folder import RunError, RunFolder, RunInfo
from core.runs.recorder import kept_preset, load_best
from core.storage.tensor_file import CheckpointError
from core.tasks import Task, build_task
from core.teaching.bugs import bug_of, new_state
from core.training.history import History
from core.training.state import TrainingState


@dataclass(frozen=True)
class LoadedRun:
    """A run's model in evaluation mode, with the task it learned and the preset it was trained from.

    Attributes:
        run: name of the run.
        kind: which weights: "best" (lowest validation loss), or "latest" while the run is training.
        step: the update after which these weights were saved.
    """

    run: str
    kind: Literal["latest", "best"]
    step: int
    preset: Preset
    task: Task
    model: Seq2Seq


class RunSource(Protocol):
    """Where loaded runs come from: ``SavedRuns`` on disk, or a server that also has runs in training."""

    def loaded(self, name: str) -> LoadedRun:
        """Return the run's model."""

    def preset(self, name: str) -> Preset:
        """Return the preset the run was trained from."""

    def info(self, name: str) -> RunInfo:
        """Return the run's status and figures."""

    def history(self, name: str) -> History:
        """Return the run's figures by step."""


class SavedRuns:
    """The runs in a folder, as they were last saved."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def loaded(self, name: str) -> LoadedRun:
        """Load a run's best weights; see ``load_run``."""
        return load_run(self.root / name)

    def preset(self, name: str) -> Preset:
        """Read a run's preset; RunError if there is no such run."""
        return RunFolder(self.root, name).preset()

    def info(self, name: str) -> RunInfo:
        """Read a run's status and figures; RunError if there is no such run."""
        return RunFolder(self.root, name).info()

    def history(self, name: str) -> History:
        """Read a run's figures by step."""
        folder = RunFolder(self.root, name)
        return History.load(folder.metrics, folder.preset().training.steps)


def load_run(path: Path) -> LoadedRun:
    """Load the best weights of the run in a folder, such as ``checkpoints/digits-reversal-shipped``.

    A damaged weight file is replaced by the one saved before it, and the run's message says so.

    Raises:
        RunError: there is no such run, it has no weights yet, or they cannot be read.
    """
    folder = RunFolder(path.parent, path.name)
    preset = kept_preset(folder)
    if not folder.best.exists():
        raise RunError(f"run={folder.name!r} has no weights yet; it is {folder.info().status}")
    loaded = empty_run(folder, preset)
    try:
        facts = load_best(folder, loaded.model)
    except CheckpointError as error:
        raise RunError(f"run={folder.name!r}: {error}") from error
    return replace(loaded, step=facts["step"])


def empty_run(
    folder: RunFolder, preset: Preset, *, kind: Literal["latest", "best"] = "best", step: int = -1
) -> LoadedRun:
    """Return a run whose model has random weights, to be replaced by saved ones."""
    task = build_task(preset.task, pairs=folder.pairs)
    model = bug_of(preset).on_model(build_model(preset.model, task, torch.Generator()))
    return LoadedRun(folder.name, kind, step, preset, task, model.eval())


def training_state_of(loaded: LoadedRun) -> TrainingState:
    """Return a new training state with a loaded run's weights and step, such as the doctor examines."""
    state = new_state(loaded.preset, pairs=loaded.task.pairs_file)
    state.model.load_state_dict(loaded.model.state_dict())
    state.step = loaded.step
    return state
