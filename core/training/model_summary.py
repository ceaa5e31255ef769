"""What a preset's model is made of: its parameters, and the memory that training it takes."""

from dataclasses import dataclass

import torch
from torch import nn

from core.config import Preset
from core.evaluation.accuracy import sequence_loss
from core.models import Seq2Seq, outline_model
from core.tasks import build_task
from core.text.vocab import BOS_ID

BYTES = 4  # of a float32
ADAM_COPIES = 2  # Adam keeps two numbers for each parameter


@dataclass(frozen=True)
class Memory:
    """Bytes needed to train on batches of one size.

    Attributes:
        weights, gradients, optimizer: depend on the model only.
        activations: kept for the backward pass; linear in the batch, and in part quadratic in the length.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it together."""
        return self.weights + self.gradients + self.optimizer + self.activations


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by name."""
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Return how many parameters each of the model's outermost parts has; those of a list of layers, each layer."""
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        first, second, *_ = [*name.split("."), ""]
        part = f"{first}.{second}" if second.isdigit() else first
        parts[part] = parts.get(part, 0) + parameter.numel()
    return parts


def memory_of(preset: Preset, *, batch_size: int, length: int) -> Memory:
    """Work out what training takes on batches of that many sequences of that many tokens, BOS and EOS included.

    The backward pass is not made: what it would need is counted while the forward pass runs on tensors that have a
    shape and no content.

    Args:
        length: of source and target alike; at most the model's ``max_seq_len``.
    """
    model = outline_model(preset.model, build_task(preset.task)).train()
    kept = kept_for_backward(model, torch.full((batch_size, length), BOS_ID, device="meta"))
    parameters = sum(parameter.numel() for parameter in model.parameters()) * BYTES
    return Memory(parameters, parameters, ADAM_COPIES * parameters, kept)


def kept_for_backward(model: Seq2Seq, ids: torch.Tensor) -> int:
    """Count the bytes that autograd keeps for the backward pass, each tensor once, parameters not.

    Args:
        ids: (B, T) int64, source and target alike.
    """
    own = {id(parameter) for parameter in model.parameters()}
    sizes: dict[int, int] = {}
    held = []  # or an id could be given out again

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        base = tensor if tensor._base is None else tensor._base
        if id(base) not in own and id(tensor) not in own:
            held.append(base)
            sizes[id(base)] = base.numel() * base.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits, _ = model(ids, ids)
        sequence_loss(logits, ids)
    return sum(sizes.values())
