"""Training states of runs on disk: restored to resume training, or built from a loaded run to examine it."""

from pathlib import Path

import torch

from core.config import Preset
from core.interpret.trained import Trained
from core.runs.folder import RunFolder
from core.storage.tensor_file import load_weights, previous_path, read_with_fallback
from core.teaching.bugs import new_state
from core.training.checkpoint import restore_state
from core.training.state import TrainingState


def resume_state(folder: RunFolder, preset: Preset | None = None, *, device: str = "cpu") -> TrainingState:
    """Return the training state to continue a run from: the last one saved, or a new one.

    The new one of a run that began from another run has the weights of that run, and everything else anew.

    If the last state is damaged, the one saved before it is used and the state's ``notice`` says so.

    Args:
        preset: the run's preset, with another number of training steps if the run is to be extended; None reads it.

    Raises:
        CheckpointError: there are saved states, but none can be used; or the weights to begin with cannot be used.
    """
    preset = preset or folder.read_preset()
    if not folder.last.exists() and not previous_path(folder.last).exists():
        state = new_state(preset, device=device, pairs=folder.pairs)
        if folder.written_info().start is not None:
            load_weights(folder.start, state.model)
        return state
    state, note = read_with_fallback(
        folder.last, lambda path: load_state(path, preset, device=device, pairs=folder.pairs)
    )
    state.notice = "; ".join(filter(None, [note, state.notice]))
    return state


def load_state(path: Path, preset: Preset, *, device: str = "cpu", pairs: Path | None = None) -> TrainingState:
    """Build a preset's training state and restore it from a file; see ``core.training.checkpoint.restore_state``."""
    return restore_state(path, new_state(preset, device=device, pairs=pairs))


def training_state_of(loaded: Trained) -> TrainingState:
    """Return a new training state with a loaded run's weights and step, such as the doctor examines."""
    state = new_state(loaded.preset, pairs=loaded.task.pairs_file)
    state.model.load_state_dict(loaded.model.state_dict())
    state.step = loaded.step
    return state


def clone_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the state dict on the CPU that later updates do not change."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}
