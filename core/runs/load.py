"""Load a run's trained model: the only loader, shared by the command line, the page, exports and notebooks.

This module does not import ``core.training``, so that decoding with a saved run starts quickly.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from core.config import Preset
from core.models import Seq2Seq, assemble_model
from core.runs.folder import RunError, RunFolder
from core.runs.info import RunInfo
from core.storage.tensor_file import CheckpointError, load_into, read_tensors, read_with_fallback
from core.tasks import Task, build_task

if TYPE_CHECKING:
    from core.runs.replay import Replay
    from core.training.history import History

WeightsKind = Literal["latest", "best", "kept"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedRun:
    """A run's model in evaluation mode, with its task and preset.

    Attributes:
        run: name of the run.
        kind: which weights: "best" (lowest validation loss), "latest" while the run is training, or "kept" at an
            earlier training step (``core.runs.weights_by_step``).
        step: number of training steps after which these weights were saved.
        preset: the preset that the run was started with.
        task: the preset's task, with its vocabularies and data.
        model: the model with the weights loaded, in evaluation mode, on the CPU.
        facts: metadata saved with the weights: step, validation_loss, exact_match, quality of translations, preset,
            provenance; empty unless "best".
    """

    run: str
    kind: WeightsKind
    step: int
    preset: Preset
    task: Task
    model: Seq2Seq
    facts: Mapping[str, Any] = field(default_factory=dict)


class RunSource(Protocol):
    """Read access to runs by name: ``SavedRuns`` on disk, or ``core.server.Runs``, which includes runs in training."""

    def preset(self, name: str) -> Preset:
        """Return the run's preset."""

    def loaded(self, name: str) -> LoadedRun:
        """Return the run's model."""

    def info(self, name: str) -> RunInfo:
        """Return the run's status and latest metrics."""

    def history(self, name: str) -> "History":
        """Return the run's metrics by step."""

    def replay(self, name: str) -> "Replay":
        """Return the run's attention snapshots."""

    def title(self, name: str) -> str:
        """Return the run's title."""


class SavedRuns:
    """The runs in a folder, in the state in which they were last saved.

    Args:
        root: the folder of runs, such as ``checkpoints``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def preset(self, name: str) -> Preset:
        """Read a run's preset; RunError if there is no such run."""
        return RunFolder(self.root, name).preset()

    def loaded(self, name: str) -> LoadedRun:
        """Load a run's best weights; see ``load_run``. ``name`` may be untrusted input."""
        return load_run(RunFolder(self.root, name).path)

    def ensemble(self, names: Sequence[str]) -> LoadedRun:
        """Load several runs of one task as one ``Ensemble``; preset and step are the first one's.

        Raises:
            RunError: a run cannot be loaded, or has another task or vocabulary than the first.
        """
        from core.models.ensemble import Ensemble  # imported here because a single run does not need it

        first, *others = members = [self.loaded(name) for name in names]
        for other in others:
            if other.preset.task != first.preset.task:
                raise RunError(f"run={other.run!r} has another task than run={first.run!r}; an ensemble has one task")
            if _vocabularies(other.task) != _vocabularies(first.task):
                raise RunError(f"run={other.run!r} has another vocabulary than run={first.run!r}; an ensemble has one")
        model = Ensemble([member.model for member in members]).eval()
        return replace(first, run=" + ".join(member.run for member in members), model=model, facts={})

    def info(self, name: str) -> RunInfo:
        """Read a run's status and metrics; RunError if there is no such run."""
        return RunFolder(self.root, name).info()

    def history(self, name: str) -> "History":
        """Read a run's metrics by step; RunError if there is no such run."""
        from core.training.history import History  # imported here because decoding does not need it

        self.info(name)  # is there such a run?
        return History.load(RunFolder(self.root, name).metrics)

    def replay(self, name: str) -> "Replay":
        """Read a run's attention snapshots; RunError if there is no such run."""
        from core.runs.replay import Replay  # imported here because decoding does not need it

        every = self.preset(name).training.evaluate_every
        return Replay.load(RunFolder(self.root, name).replay, every)

    def title(self, name: str) -> str:
        """Read a run's title; the default one if there is no such run."""
        return RunFolder(self.root, name).title()


def _vocabularies(task: Task) -> tuple[Sequence[str], Sequence[str]]:
    return task.src_vocab.tokens, task.tgt_vocab.tokens


def load_run(path: Path) -> LoadedRun:
    """Load the best weights of the run in a folder, such as ``checkpoints/digits-reversal-shipped``.

    If the weight file is damaged, the previous one is used. If ``preset.yaml`` was deleted, it is restored from the
    weights' metadata. In both cases loading writes to the folder, if possible: the restored file, and a note in the
    run's message. A plugin that has changed since the training is used, with a warning in the log.

    Raises:
        RunError: there is no such run, it has no weights yet, or they or the preset cannot be read.
    """
    folder = RunFolder(path.parent, path.name)
    preset = folder.ensure_preset()
    if not folder.best.exists():
        raise RunError(f"run={folder.name!r} has no weights yet; it is {folder.info().status}")
    if changed := folder.changed_plugins():
        _log.warning("run=%r: %s; its outputs may differ", folder.name, changed)

    def read(file: Path) -> LoadedRun:
        weights, facts = read_tensors(file)
        step = facts.get("step")
        if not isinstance(step, int):
            raise CheckpointError(f"{file.name} has no step in its metadata")
        return build_run(folder, preset, weights, facts=facts, step=step, label=file.name)

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
    """Build a preset's model, apply its teaching bug if it has one, and load weights into the model.

    A teaching bug is an intentional defect for the lessons; see ``core.teaching.bugs``.

    Args:
        folder: the run's folder; supplies the run's name and its copy of the user-provided pairs.
        preset: the run's preset.
        weights: the model's state dict.
        step: number of training steps after which the weights were saved.
        kind: see ``LoadedRun``.
        facts: metadata of the weights, see ``LoadedRun``; None means there is none.
        label: name of the weights in error messages.

    Raises:
        CheckpointError: names or shapes of the weights do not match the model.
    """
    task = build_task(preset.task, pairs=folder.pairs)
    model = assemble_model(preset.model, task)
    if preset.bug:
        from core.teaching.bugs import bug_of  # imports training, which an ordinary run does not need

        model = bug_of(preset).on_model(model)
    load_into(model, weights, label)
    return LoadedRun(folder.name, kind, step, preset, task, model.eval(), facts or {})
