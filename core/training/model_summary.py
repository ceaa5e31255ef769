"""Model summary of a preset: its parameters, and an estimate of the memory that training needs."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from core.config import Preset
from core.evaluation.accuracy import sequence_loss
from core.models import Seq2Seq, outline_model
from core.tasks import build_task
from core.text.vocab import BOS_ID

BYTES = 4  # of a float32
ADAM_COPIES = 2  # Adam keeps two moments per parameter


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes needed to train with batches of one size.

    Attributes:
        weights, gradients, optimizer: depend on the model only.
        activations: saved for the backward pass; linear in the batch size, partly quadratic in the length.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of all four, in bytes."""
        return self.weights + self.gradients + self.optimizer + self.activations


def parameter_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by name."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def parameters_by_module(model: nn.Module) -> dict[str, int]:
    """Count the parameters of each direct submodule of a model; a list of layers counts layer by layer."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        first, second, *_ = [*name.split("."), ""]
        module = f"{first}.{second}" if second.isdigit() else first
        counts[module] = counts.get(module, 0) + parameter.numel()
    return counts


def estimate_memory(preset: Preset, *, batch_size: int, length: int, pairs: Path | None = None) -> MemoryEstimate:
    """Estimate the memory to train with batches of ``batch_size`` sequences of ``length`` tokens, BOS and EOS included.

    Runs the forward pass on meta tensors, which have shapes but no data, and counts what autograd saves.

    Args:
        length: of source and target; at most the model's ``max_seq_len``.
        pairs: the file of the task's own pairs, if it has any.
    """
    model = outline_model(preset.model, build_task(preset.task, pairs=pairs)).train()
    activations = activation_bytes(model, torch.full((batch_size, length), BOS_ID, device="meta"))
    parameters = sum(parameter.numel() for parameter in model.parameters()) * BYTES
    return MemoryEstimate(parameters, parameters, ADAM_COPIES * parameters, activations)


def activation_bytes(model: Seq2Seq, ids: torch.Tensor) -> int:
    """Count the bytes of tensors that autograd saves for the backward pass, each once, parameters excluded.

    Args:
        ids: (B, T) int64, used as source and as target.
    """
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    sizes: dict[int, int] = {}
    alive = []  # keeps every saved tensor, because Python reuses the id of a freed object

    def save(tensor: torch.Tensor) -> torch.Tensor:
        base = tensor if tensor._base is None else tensor._base
        if id(base) not in parameter_ids and id(tensor) not in parameter_ids:
            alive.append(base)
            sizes[id(base)] = base.numel() * base.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        logits = model(ids, ids)
        sequence_loss(logits, ids)
    return sum(sizes.values())
