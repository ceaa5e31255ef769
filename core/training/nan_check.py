"""Where numbers stopped being finite: looked for only once they have, so that training pays nothing for it."""

from collections.abc import Callable

import torch
from torch import nn


def first_non_finite(model: nn.Module, run: Callable[[], object]) -> str:
    """Name what went wrong first in an update whose loss or gradient is not finite.

    Looked at in this order, which is that of cause and effect: weights, activations on the way to the loss, gradients
    on the way back from it.

    Args:
        model: its parameters hold the gradients of the update, not clipped.
        run: computes the loss again, with the same numbers.
    """
    parameters = list(model.named_parameters())
    for name, parameter in parameters:
        if not _is_finite(parameter):
            return f"weight {name} is not finite"
    module = _first_module_not_finite(model, run)
    if module:
        return f"the output of {module} is the first that is not finite"
    for name, parameter in reversed(parameters):  # the way back from the loss
        if parameter.grad is not None and not _is_finite(parameter.grad):
            return f"the gradient of {name} is the first that is not finite"
    return f"weights, activations and gradients are finite by themselves; {_largest_gradient(parameters)}"


def all_finite(model: nn.Module) -> bool:
    """Tell whether every weight is a finite number."""
    return all(_is_finite(parameter) for parameter in model.parameters())


class _FoundError(Exception):
    """Ends a run of the model at the first module whose output is not finite."""


@torch.no_grad()
def _first_module_not_finite(model: nn.Module, run: Callable[[], object]) -> str:
    """Return the name of the module that first returns something not finite, the innermost one; "" if none does."""
    names = {module: name for name, module in model.named_modules() if name}

    def check(module: nn.Module, _: object, output: object) -> None:
        tensors = output if isinstance(output, tuple) else (output,)
        if any(isinstance(each, torch.Tensor) and not _is_finite(each) for each in tensors):
            raise _FoundError(names[module])

    hooks = [module.register_forward_hook(check) for module in names]
    try:
        run()
    except _FoundError as found:
        return str(found)
    finally:
        for hook in hooks:
            hook.remove()
    return ""


def _largest_gradient(parameters: list[tuple[str, nn.Parameter]]) -> str:
    """Name the parameter whose gradient has the largest number in it."""
    sizes = {name: parameter.grad.abs().max().item() for name, parameter in parameters if parameter.grad is not None}
    largest = max(sizes, key=sizes.__getitem__)
    return f"the largest gradient is {sizes[largest]:.3g}, of {largest}"


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())
