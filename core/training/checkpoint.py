"""Save and restore whole training states as safetensors files; nothing is unpickled."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from core.evaluation.accuracy import Evaluation
from core.storage.tensor_file import CheckpointError, load_into, read_tensors, write_tensors
from core.training.state import TrainingState
from core.training.update_norms import UpdateNorms

_SCALAR_FIELDS = (
    "step",
    "evaluated_step",
    "best_loss",
    "best_step",
    "sequences_seen",
    "loss_sum",
    "last_loss",
    "last_gradient_norm",
    "seconds",
    "threads",
)
_STEP_STRIDE = 1_000_003
_log = logging.getLogger(__name__)


def save_state(path: Path, state: TrainingState) -> None:
    """Write everything a run needs to resume bit for bit, atomically; keep the previous file."""
    tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
    for name, parameter in state.model.named_parameters():
        for key, tensor in state.optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{name}.{key}"] = tensor
    tensors |= {f"snapshot.{block}": rows for block, rows in state.snapshot_rows.items()}
    tensors["generator"] = state.generator.get_state()
    facts = {name: getattr(state, name) for name in _SCALAR_FIELDS}
    facts["last_evaluation"] = asdict(state.last_evaluation) if state.last_evaluation else None
    facts["update_norms"] = asdict(state.update_norms) if state.update_norms else None
    facts |= {"device": state.generator.device.type} | _numerics_versions()
    write_tensors(path, tensors, facts, keep_previous=True)


def restore_state(path: Path, state: TrainingState) -> TrainingState:
    """Fill a new state of the same preset with what ``save_state`` wrote.

    Args:
        state: as ``new_state`` returns it, on the device to continue on. On another kind of device than the state was
            saved on, the random generator is reseeded from the seed and the step.

    Returns:
        The same state. Its ``notice`` says why the rest of the run may differ in the last bits, if so.

    Raises:
        CheckpointError: the file is missing, damaged, of another format or of another preset, or lacks a field.
    """
    tensors, facts = read_tensors(path)
    load_into(state.model, _with_prefix(tensors, "model."), path.name)
    for name, parameter in state.model.named_parameters():
        moments = _with_prefix(tensors, f"optimizer.{name}.")
        if moments:
            state.optimizer.state[parameter] = {key: moment.to(parameter.device) for key, moment in moments.items()}
    state.snapshot_rows = _with_prefix(tensors, "snapshot.")
    try:
        for name in _SCALAR_FIELDS:
            setattr(state, name, facts[name])
        state.last_evaluation = Evaluation(**facts["last_evaluation"]) if facts["last_evaluation"] else None
        norms = facts.get("update_norms")  # missing in older files
        state.update_norms = UpdateNorms(**norms) if norms else None
        _restore_generator(state, tensors["generator"], facts["device"])
        _note_other_versions(state, facts)
    except KeyError as error:
        raise CheckpointError(f"{path.name} is not a training state: it has no field {error}") from error
    except (TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path.name} is not a training state: {error}") from error
    return state


def _restore_generator(state: TrainingState, saved: torch.Tensor, device: str) -> None:
    """Restore the random generator; on another kind of device than it was saved on, reseed it."""
    generator, seed = state.generator, state.preset.training.seed
    if generator.device.type == device:
        generator.set_state(saved)
        return
    generator.manual_seed(seed * _STEP_STRIDE + state.step)
    state.notice = (
        f"saved on {device}, continued on {generator.device.type}: the random generator was reseeded from seed "
        f"{seed} and step {state.step}, so the rest of the run differs from a run on {device}"
    )
    _log.warning("%s", state.notice)


def _numerics_versions() -> dict[str, str]:
    """Return what a run's last bits depend on besides the number of threads."""
    return {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}


def _note_other_versions(state: TrainingState, facts: dict[str, Any]) -> None:
    """Set ``state.notice`` if the state was saved with another PyTorch or on another kind of CPU."""
    changes = [f"{name} {facts[name]}, now {now}" for name, now in _numerics_versions().items() if facts[name] != now]
    if changes and not state.notice:
        state.notice = f"saved with {' and '.join(changes)}: the rest of the run is not bit-exact"
        _log.warning("%s", state.notice)


def _with_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names start with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
