"""The folder of a watched training: a new one, or one to go on with."""

from pathlib import Path

from torch import nn

from core.config import Preset, parse_preset
from core.interpret.any_module.calling import Forward
from core.runs.folder import RunError, RunFolder
from core.runs.watching.batch import WatchedBatch
from core.runs.watching.pace import MAX_EVERY
from core.storage.errors import InputError


def preset_of(
    forward: Forward, module: nn.Module | None, batch: WatchedBatch, *, every: int | None, steps: int | None
) -> Preset:
    """Return the preset that stands for a watched training."""
    name = type(module).__name__ if module is not None else getattr(forward, "__name__", "")
    name = name if name.isidentifier() and name.isascii() else "Model"
    task = {
        "family": "watched",
        "module": name[:100],
        "steps": steps or 0,
        "longest_source": 0 if batch.tgt_in is None else batch.src.shape[1],
        "longest_answer": batch.tgt_out.shape[1],
    }
    training = {"evaluate_every": min(every or 1, MAX_EVERY)}
    document = {"name": "watched", "description": f"{name}, trained by its own loop and watched"}
    return parse_preset(document | {"task": task, "model": {"family": "watched"}, "training": training})


def with_interval(preset: Preset, every: int) -> Preset:
    """Return a preset with another number of updates between evaluations, which alone is written of the training."""
    return preset.model_copy(update={"training": preset.training.model_copy(update={"evaluate_every": every})})


def created(root: Path, name: str | None, preset: Preset) -> RunFolder:
    """Create the folder of a new run; RunError if there is one of that name."""
    if name is not None and (folder := RunFolder(root, name)).exists():
        raise RunError(
            f"run={name!r} exists already, with {folder.read_info().step:,} steps; pass resume=True to go on with it, "
            "or another name"
        )
    return RunFolder.create(root, preset, name=name)


def to_resume(root: Path, name: str | None) -> RunFolder:
    """Return the folder of a run to go on with; RunError if there is none, or it is no watched one."""
    if name is None:
        raise InputError("name=None must be the name of the run to go on with, as resume=True")
    folder = RunFolder(root, name)
    if not folder.read_preset().is_watched:
        raise RunError(f"run={name!r} is trained by the lab, so lab.watch cannot go on with it; choose another name")
    return folder
