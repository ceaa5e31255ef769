"""Hand a run out as one file, which ``core.runs.imports`` takes in again."""

from pathlib import Path

import torch

from core.config import preset_to_yaml
from core.models import build_model
from core.runs import RunError, RunFolder
from core.runs.recorder import load_best
from core.storage.errors import InputError
from core.storage.tensor_file import write_tensors
from core.tasks import build_task
from core.teaching.bugs import bug_of


def export_run(folder: RunFolder, path: Path) -> None:
    """Write a run's best weights and its preset into one file.

    Raises:
        RunError: there is no such run, or it has no weights yet.
        CheckpointError: its weights are damaged.
        InputError: there is such a file already, or it cannot be written.
    """
    preset = folder.preset()
    if not folder.best.exists():
        raise RunError(f"run={folder.name!r} has no weights yet; it is {folder.info().status}")
    if path.exists():
        raise InputError(f"--out={str(path)[:200]} exists already")
    model = bug_of(preset).on_model(
        build_model(preset.model, build_task(preset.task, pairs=folder.pairs), torch.Generator())
    )
    facts = load_best(folder, model)
    try:
        write_tensors(path, model.state_dict(), facts | {"preset": preset_to_yaml(preset)})
    except OSError as error:
        raise InputError(f"--out={str(path)[:200]} cannot be written: {error.strerror or error}") from error
