"""Load a run's trained model from its files: the only loader; ``Run.trained`` keeps what it returns.

This module does not import ``core.training``, so that decoding with a saved run starts quickly.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core.config import Preset
from core.config.tasks import NOT_HERE
from core.interpret.trained import Trained, WeightsKind
from core.models import assemble_model
from core.runs.folder import RunError, RunFolder
from core.runs.info import without_weights
from core.runs.plugin_versions import changed_plugins
from core.storage.tensor_file import CheckpointError, load_into, read_tensors, read_with_fallback
from core.tasks import build_task

_log = logging.getLogger(__name__)


def load_run(path: Path, *, pairs: Path | None = None) -> Trained:
    """Load the best weights of the run in a folder, such as ``checkpoints/digits-reversal-shipped``.

    If the weight file is damaged, the previous one is used. If ``preset.yaml`` was deleted, it is restored from the
    weights' metadata. In both cases loading writes to the folder, if possible: the restored file, and a note in the
    run's message. A plugin that has changed since the training is used, with a warning in the log.

    Args:
        pairs: of a run that is published without its own; see ``Trained.with_pairs``.

    Raises:
        RunError: there is no such run, it has no weights yet, or they or the preset cannot be read.
    """
    folder = RunFolder(path.parent, path.name)
    preset = folder.ensure_preset()
    if not folder.best.exists():
        why = NOT_HERE if preset.is_watched else without_weights(folder.read_info())
        raise RunError(f"run={folder.name!r} {why}")
    if changed := changed_plugins(folder.plugins()):
        _log.warning("run=%r: %s; its outputs may differ", folder.name, changed)

    def read(file: Path) -> Trained:
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
    return loaded if pairs is None else loaded.with_pairs(pairs)


def build_run(
    folder: RunFolder,
    preset: Preset,
    weights: dict[str, torch.Tensor],
    *,
    step: int,
    kind: WeightsKind = "best",
    facts: Mapping[str, Any] | None = None,
    label: str = "weights",
) -> Trained:
    """Build a preset's model, apply its teaching bug if it has one, and load weights into the model.

    A teaching bug is an intentional defect for the lessons; see ``core.teaching.bugs``.

    Args:
        folder: the run's folder; supplies the run's name and its copy of the user-provided pairs.
        preset: the run's preset.
        weights: the model's state dict.
        step: number of training steps after which the weights were saved.
        kind: see ``Trained``.
        facts: metadata of the weights, see ``Trained``; None means there is none.
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
    return Trained(folder.name, kind, step, preset, task, model.eval(), facts or {})
