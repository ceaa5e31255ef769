"""Gradient norm and update size of an update, for each part of a model: embeddings, every layer, output.

They show which part learns too fast or not at all. The norm over all parameters hides this.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

EMBEDDINGS, ATTENTION, OUTPUT = "embeddings", "attention", "output"
_LAYER = re.compile(r"(?:(encoder|decoder)(?:_layers|\.layers)|layers)\.(\d+)\.")

Parts = Mapping[str, Sequence[torch.Tensor]]


@dataclass(frozen=True)
class UpdateNorms:
    """Norms of one update by part; the names of the parts are those of ``parameter_parts``.

    Attributes:
        gradient_norm: L2 norm of the part's gradients before clipping; 0 for a part without gradients.
        update_size: L2 norm of the change of the part's weights, divided by the L2 norm of the weights before the
            update; None for a part with only zero weights.
    """

    gradient_norm: dict[str, float]
    update_size: dict[str, float | None]


def parameter_parts(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Divide the parameters of a model into disjoint parts; a tied output layer belongs to the embeddings.

    The parts are "embeddings", "encoder.1" …, "decoder.1" … (every layer), "attention" (of the GRU, where it belongs to
    no layer), and "output". The final norm of a pre-norm encoder belongs to the last encoder layer, that of a decoder
    to the output.
    """
    parts: dict[str, list[nn.Parameter]] = {}
    of_encoder_norm = []
    for name, parameter in model.named_parameters():
        if name.startswith("encoder_norm."):
            of_encoder_norm.append(parameter)
        else:
            parts.setdefault(_part_of(name), []).append(parameter)
    if of_encoder_norm:
        last = max(int(part.split(".")[1]) for part in parts if part.startswith("encoder."))
        parts[f"encoder.{last}"] += of_encoder_norm
    return parts


def gradient_norms(parts: Mapping[str, Sequence[nn.Parameter]]) -> dict[str, float]:
    """Return the L2 norm of the gradients of each part, from ``parameter.grad``; 0 without gradients."""
    return {part: _norm([each.grad for each in of_part if each.grad is not None]) for part, of_part in parts.items()}


@torch.no_grad()
def update_sizes(before: Parts, after: Parts) -> dict[str, float | None]:
    """Return ‖after − before‖ / ‖before‖ of each part (L2 norms); None where all weights before were zero.

    Args:
        before, after: the weights of each part, of the same shapes in the same order.
    """
    sizes: dict[str, float | None] = {}
    for part, old in before.items():
        norm = _norm(old)
        change = _norm([new - each for new, each in zip(after[part], old, strict=True)])
        sizes[part] = change / norm if norm else None
    return sizes


class UpdateMeasurement:
    """Measures one update. Create it when the gradients are complete, before they are clipped or used.

    It copies the weights, so use it only for the few updates with recorded norms.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module) -> None:
        self._parts = parameter_parts(model)
        self._gradient_norms = gradient_norms(self._parts)
        self._before = {part: [each.detach().clone() for each in of_part] for part, of_part in self._parts.items()}

    def norms(self) -> UpdateNorms:
        """Return the norms; call it after the optimizer's step."""
        return UpdateNorms(self._gradient_norms, update_sizes(self._before, self._parts))


def _part_of(name: str) -> str:
    """Return the part of a parameter by its name in the model."""
    if layer := _LAYER.match(name):
        return f"{layer[1] or 'decoder'}.{int(layer[2]) + 1}"
    if "embedding" in name.split(".")[0]:
        return EMBEDDINGS
    return ATTENTION if ".attention." in name else OUTPUT


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return torch.nn.utils.get_total_norm(list(tensors)).item() if tensors else 0.0
