"""Save and load weights and whole training states as safetensors; nothing is ever unpickled."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from core.evaluation.accuracy import Evaluation
from core.storage.tensor_file import CheckpointError, read_tensors, write_tensors
from core.training.state import TrainingState

_PLAIN_FIELDS = (
    "step",
    "evaluated_step",
    "best_loss",
    "best_step",
    "sequences_seen",
    "seconds",
    "threads",
)
# Older states have none of these; only means and messages shown are the less exact.
_LATER_FIELDS = {"loss_sum": 0.0, "last_loss": None, "last_gradient_norm": None}
# What states that do not say it were made with.
_OLDEST = {"dropout": "drawn one by one", "fresh batches": "chosen from sixteen"}
_STEP_STRIDE = 1_000_003
_log = logging.getLogger(__name__)


def save_weights(path: Path, weights: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Write a model's weights, atomically, with JSON facts about them (step, figures); the old file is kept too."""
    write_tensors(path, weights, facts, keep_previous=True)


def load_weights(path: Path, model: torch.nn.Module) -> dict[str, Any]:
    """Load weights into a model of the same shape and return the facts saved with them.

    Raises:
        CheckpointError: the file is missing, damaged, of another format or of another model.
    """
    tensors, facts = read_tensors(path)
    _fill(model, tensors, path)
    return facts


def save_state(path: Path, state: TrainingState) -> None:
    """Write everything a run needs to continue bit for bit, atomically; the old file is kept too."""
    tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
    for name, parameter in state.model.named_parameters():
        for key, tensor in state.optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{name}.{key}"] = tensor
    tensors["generator"] = state.generator.get_state()
    facts = {name: getattr(state, name) for name in (*_PLAIN_FIELDS, *_LATER_FIELDS)}
    facts["device"] = state.generator.device.type
    facts["last_evaluation"] = asdict(state.last_evaluation) if state.last_evaluation else None
    facts |= _sources_of_last_bits(state)
    write_tensors(path, tensors, facts, keep_previous=True)


def restore_state(path: Path, state: TrainingState) -> TrainingState:
    """Fill a new state of the same preset with what ``save_state`` wrote.

    Args:
        state: as ``new_state`` returns it, on the device to continue on. On another kind of device than it was saved on, the state of the random generator
            means nothing: the generator then starts anew from the seed and the step.

    Returns:
        The state; its ``notice`` says what of it may not be the same bit for bit.

    Raises:
        CheckpointError: the file is missing, damaged, of another format or of another preset.
    """
    tensors, facts = read_tensors(path)
    _fill(state.model, _below(tensors, "model."), path)
    for name, parameter in state.model.named_parameters():
        moments = _below(tensors, f"optimizer.{name}.")
        if moments:
            state.optimizer.state[parameter] = {key: each.to(parameter.device) for key, each in moments.items()}
    try:
        for name in _PLAIN_FIELDS:
            setattr(state, name, facts[name])
        for name, otherwise in _LATER_FIELDS.items():
            setattr(state, name, facts.get(name, otherwise))
        _restore_generator(state, tensors["generator"], facts.get("device", "cpu"))
        _compare_sources(state, facts)
        state.last_evaluation = Evaluation(**facts["last_evaluation"]) if facts["last_evaluation"] else None
    except (KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path.name} is not a training state: {error}") from error
    return state


def _restore_generator(state: TrainingState, saved: torch.Tensor, device: str) -> None:
    """Put the random generator where it was, or, if that was on another kind of device, where it is each time."""
    generator, seed = state.generator, state.preset.training.seed
    if generator.device.type == device:
        generator.set_state(saved)
        return
    generator.manual_seed(seed * _STEP_STRIDE + state.step)
    state.notice = (
        f"saved on {device}, continued on {generator.device.type}: random numbers are drawn anew, from seed {seed} and "
        f"step {state.step}, so the rest of the run is not what it would have been on {device}"
    )
    _log.warning("%s", state.notice)


def _sources_of_last_bits(state: TrainingState) -> dict[str, str]:
    """Name what a run's results depend on to the last bit, beside the number of threads."""
    sources = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    if state.preset.model.dropout and state.generator.device.type == "cpu":
        sources["dropout"] = "drawn four at once"
    training = state.preset.training
    if training.group_by_length and not training.training_sequences and state.task.all_pairs("train") is None:
        sources["fresh batches"] = "drawn sixteen at once"
    return sources


def _compare_sources(state: TrainingState, facts: dict[str, Any]) -> None:
    """Say so where the rest of the run will not be the same bit for bit."""
    now = _sources_of_last_bits(state)
    then = now | _OLDEST | facts
    others = [f"{name} {then[name]}, now {now[name]}" for name in now if then[name] != now[name]]
    if others and not state.notice:
        state.notice = f"saved with {' and '.join(others)}: the rest of the run is not bit-exact"
        _log.warning("%s", state.notice)


def _fill(model: torch.nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{path.name} does not fit the model: {error}") from error


def _below(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
