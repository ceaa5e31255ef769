"""Model summary of a preset: its parameters by name and by module."""

from torch import nn


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
