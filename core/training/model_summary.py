"""Model summary of a preset: its parameters by name and by module."""

import re
from collections.abc import Mapping
from itertools import groupby
from typing import TypeVar

from torch import nn

Value = TypeVar("Value")
_LAYER = re.compile(r"(.*?)\.(\d+)(\..*)?")  # of a stack: its name, the number, the rest


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


def layer_groups(values: Mapping[str, Value]) -> list[tuple[str, Value, int]]:
    """Return names, values and numbers of layers, with one entry for layers in succession that have the same values.

    ``{"encoder_layers.0": 5, "encoder_layers.1": 5}`` becomes ``[("encoder_layers.0–1", 5, 2)]``.
    """
    layers: list[tuple[str, int, dict[str, Value]]] = []  # stack, number of the layer, values by the rest of the name
    for name, value in values.items():
        match = _LAYER.fullmatch(name)
        stack, number, rest = (match[1], int(match[2]), match[3] or "") if match else (name, -1, "")
        if not layers or layers[-1][:2] != (stack, number):
            layers.append((stack, number, {}))
        layers[-1][2][rest] = value
    groups: list[tuple[str, Value, int]] = []
    for (stack, of_layer), group in groupby(layers, key=lambda each: (each[0], list(each[2].items()))):
        numbers = [number for _, number, _ in group]
        span = f".{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else f".{numbers[0]}" if numbers[0] >= 0 else ""
        groups += [(f"{stack}{span}{rest}", value, len(numbers)) for rest, value in of_layer]
    return groups
