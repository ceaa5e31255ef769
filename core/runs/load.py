"""Load a run's trained model: the only loader, shared by the command line, the page, exports and notebooks.

It imports nothing of training, so that decoding with a saved run starts quickly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from core.config import Preset
from core.models import Seq2Seq, assemble_model
from core.runs.folder import RunError, RunFolder, RunInfo
from core.storage.tensor_file import CheckpointError, load_into, read_tensors, read_with_fallback
from core.tasks import Task, build_task

if TYPE_CHECKING:
    from core.training.history import History

WeightsKind = Literal["latest", "best"]


@dataclass(frozen=True)
class LoadedRun:
    """A run's model in evaluation mode, with the task it learned and the preset it was trained from.

    Attributes:
        run: name of the run.
        kind: which weights: "best" (lowest validation loss), or "latest" while the run is training.
        step: the update after which these weights were saved.
        facts: metadata saved with the weights: step, validation_loss, exact_match, preset; empty for "latest".
    """

    run: str
    kind: WeightsKind
    step: int
    preset: Preset
    task: Task
    model: Seq2Seq
    facts: Mapping[str, Any] = field(default_factory=dict)


class RunSource(Protocol):
    """Where runs come from: ``SavedRuns`` on disk, or a server that also has runs in training."""

    def preset(self, name: str) -> Preset:
        """Return the run's preset."""

    def loaded(self, name: str) -> LoadedRun:
        """Return the run's model."""

    def info(self, name: str) -> RunInfo:
        """Return the run's status and latest metrics."""

    def history(self, name: str) -> "History":
        """Return the run's metrics by step."""


class SavedRuns:
    """The runs in a folder, as last saved.

    Args:
        root: the folder of runs, such as ``checkpoints``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def preset(self, name: str) -> Preset:
        """Read a run's preset; RunError if there is no such run."""
        return RunFolder(self.root, name).preset()

    def loaded(self, name: str) -> LoadedRun:
        """Load a run's best weights; see ``load_run``."""
        return load_run(self.root / name)

    def info(self, name: str) -> RunInfo:
        """Read a run's status and metrics; RunError if there is no such run."""
        return RunFolder(self.root, name).info()

    def history(self, name: str) -> "History":
        """Read a run's metrics by step; RunError if there is no such run."""
        from core.training.history import History  # decoding does not need it

        folder = RunFolder(self.root, name)
        return History.load(folder.metrics, folder.preset().training.steps)


def load_run(path: Path) -> LoadedRun:
    """Load the best weights of the run in a folder, such as ``checkpoints/digits-reversal-shipped``.

    If the weight file is damaged, the previous one is used and a note is added to the run's message.

    Raises:
        RunError: there is no such run, it has no weights yet, or they cannot be read.
    """
    folder = RunFolder(path.parent, path.name)
    preset = folder.ensure_preset()
    if not folder.best.exists():
        raise RunError(f"run={folder.name!r} has no weights yet; it is {folder.info().status}")

    def read(file: Path) -> LoadedRun:
        weights, facts = read_tensors(file)
        return build_run(folder, preset, weights, facts=facts, step=facts["step"], label=file.name)

    try:
        loaded, note = read_with_fallback(folder.best, read)
    except CheckpointError as error:
        raise RunError(f"run={folder.name!r}: {error}") from error
    if note:
        folder.add_note(note)
    return loaded


def build_run(
    folder: RunFolder,
    preset: Preset,
    weights: dict[str, torch.Tensor],
    *,
    step: int,
    kind: WeightsKind = "best",
    facts: Mapping[str, Any] | None = None,
    label: str = "weights",
) -> LoadedRun:
    """Build a preset's model, apply the preset's bug if it names one, and load weights into it.

    Args:
        folder: the run's, for its name and its own pairs.
        weights: the model's state dict.
        label: name of the weights in error messages.

    Raises:
        CheckpointError: the weights are those of another model.
    """
    task = build_task(preset.task, pairs=folder.pairs)
    model = assemble_model(preset.model, task)
    if preset.bug:
        from core.teaching.bugs import bug_of  # imports training, which an ordinary run does not need

        model = bug_of(preset).on_model(model)
    load_into(model, weights, label)
    return LoadedRun(folder.name, kind, step, preset, task, model.eval(), facts or {})
