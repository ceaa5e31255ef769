"""NaN check: find which tensor of an update is the first that is not finite.

It runs only after a loss or gradient that is not finite, so it does not slow down training.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from core.models.hooks import hook_names, hooks


def first_non_finite(model: nn.Module, compute_losses: Callable[[], Sequence[torch.Tensor]]) -> str:
    """Describe the first tensor of an update that is not finite.

    Checked in order of cause and effect: weights, activations at the hook points in the order of the forward pass,
    the losses, gradients in the order of the backward pass.

    Args:
        model: its parameters hold the gradients of the update, not clipped.
        compute_losses: computes the losses of the update again, with the same random draws.
    """
    parameters = list(model.named_parameters())
    for name, parameter in parameters:
        if not _is_finite(parameter):
            return f"weight {name} is not finite"
    activation = _first_non_finite_activation(model, compute_losses)
    if activation:
        return activation
    for name, parameter in reversed(parameters):  # about the order of the backward pass
        if parameter.grad is not None and not _is_finite(parameter.grad):
            return f"the gradient of {name} is the first that is not finite"
    return f"weights, activations and gradients are finite by themselves; {_largest_gradient(parameters)}"


def all_finite(model: nn.Module) -> bool:
    """Whether every weight is finite."""
    return all(_is_finite(parameter) for parameter in model.parameters())


class _NonFiniteError(Exception):
    """Stops the forward pass at the first hook point with a tensor that is not finite."""


@torch.no_grad()
def _first_non_finite_activation(model: nn.Module, compute_losses: Callable[[], Sequence[torch.Tensor]]) -> str:
    """Describe the first tensor of the forward pass that is not finite; "" if there is none."""
    last_finite = "the input"

    def check_at(name: str) -> Callable[[torch.Tensor], None]:
        def check(tensor: torch.Tensor) -> None:
            nonlocal last_finite
            if not _is_finite(tensor):
                raise _NonFiniteError(name)
            last_finite = name

        return check

    try:
        with hooks({name: check_at(name) for name in hook_names(model)}):
            losses = compute_losses()
    except _NonFiniteError as error:
        return f"{error} is the first tensor that is not finite"
    if not all(_is_finite(loss) for loss in losses):
        return f"the first tensor that is not finite comes after {last_finite}, the last hook point"
    return ""


def _largest_gradient(parameters: list[tuple[str, nn.Parameter]]) -> str:
    """Name the parameter with the largest gradient entry in magnitude."""
    sizes = {name: parameter.grad.abs().max().item() for name, parameter in parameters if parameter.grad is not None}
    largest = max(sizes, key=sizes.__getitem__)
    return f"the largest gradient is {sizes[largest]:.3g}, of {largest}"


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())
