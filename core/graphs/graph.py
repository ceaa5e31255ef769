"""A traced computation with named inputs and outputs, and its form as an ONNX model."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from core.models import Seq2Seq
from core.storage.errors import InputError
from core.storage.optional_imports import require_package

PURPOSE = "ONNX export"


@dataclass(frozen=True)
class Graph:
    """A computation as a list of tensor operations.

    Attributes:
        program: the operations, as ``torch.export`` traced them.
        inputs, outputs: names of the tensors that go in and come out, in the order of the program.
    """

    program: torch.export.ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Compute the outputs in PyTorch, by name, as ONNX Runtime would.

        Raises:
            KeyError: an input is missing.
        """
        leaves = [values[name] for name in self.inputs]
        arguments, _ = pytree.tree_unflatten(leaves, self.program.call_spec.in_spec)
        with torch.no_grad():
            found = pytree.tree_leaves(self._module(*arguments))
        return dict(zip(self.outputs, found, strict=True))

    @cached_property
    def _module(self) -> torch.nn.Module:
        return self.program.module(check_guards=False)

    def to_onnx(
        self, constants: Mapping[str, torch.Tensor] | None = None, defaults: Mapping[str, torch.Tensor] | None = None
    ) -> Any:
        """Return an ``onnx.ModelProto`` with these input and output names.

        Args:
            constants: values of inputs that are written into the model, such as the weights of a run.
            defaults: values of inputs that need not be given.

        Raises:
            LabError: onnx or onnxscript is not installed.
        """
        onnx = require_package("onnx", purpose=PURPOSE)
        require_package("onnxscript", purpose=PURPOSE)
        with warnings.catch_warnings(), _without_notes_on_torchvision():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)  # of PyTorch's own code
            exported = torch.onnx.export(
                self.program,
                (),
                input_names=list(self.inputs),
                output_names=list(self.outputs),
                dynamo=True,
                optimize=False,  # its optimizer makes training steps that give NaN at the second update
                verbose=False,
            )
        assert exported is not None  # noqa: S101 - with dynamo=True it never is
        model = exported.model_proto
        for node in model.graph.node:  # where each came from, which is many times the size of the graph
            node.doc_string = ""
            del node.metadata_props[:]
        del model.graph.value_info[:]
        values = dict(constants or {}) | dict(defaults or {})
        for name, tensor in values.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(tensor.detach().cpu().numpy(), name))
        free = [each for each in model.graph.input if each.name not in (constants or {})]
        del model.graph.input[:]
        model.graph.input.extend(free)
        return model


@contextmanager
def _without_notes_on_torchvision() -> Iterator[None]:
    """Keep the exporter from logging that it skips torchvision's operations, which no model here has."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")

    def is_other(record: logging.LogRecord) -> bool:
        return "torchvision is not installed" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def weights_of(model: Seq2Seq) -> dict[str, torch.Tensor]:
    """Return a model's parameters by name, detached."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def trace(call: torch.nn.Module, example: Sequence[Any], shapes: Sequence[Any]) -> torch.export.ExportedProgram:
    """Trace a module's call; its first input are the parameters of its attribute ``model``, by name.

    Args:
        example: arguments of the call.
        shapes: which of their sizes may vary, in ``torch.export``'s words.
    """
    weights = weights_of(call.model)  # type: ignore[arg-type] # a Module, says PyTorch
    free = (dict.fromkeys(weights), tuple(shapes))
    return torch.export.export(_WithWeights(call), (weights, *example), dynamic_shapes=free)


class _WithWeights(torch.nn.Module):
    def __init__(self, call: torch.nn.Module) -> None:
        super().__init__()
        self.calls = [call]  # no submodule, whose parameters would be part of the graph

    def forward(self, weights: dict[str, torch.Tensor], *arguments: Any) -> Any:
        named = {f"model.{name}": weight for name, weight in weights.items()}
        return torch.func.functional_call(self.calls[0], named, arguments)


def check_can_be_traced(model: Seq2Seq) -> None:
    """Raise InputError unless a model reads all tokens of a call at once, as Transformers do.

    A recurrent model reads them one by one, so its graph would be one for a single length.
    """
    if ("encoder", 1) not in model.attention and ("decoder", 1) not in model.attention:
        raise InputError("a recurrent model cannot be written as a graph for every length; Transformers can")


def flat_names(prefix: str, tree: Any) -> list[str]:
    """Return a name for every leaf of nested lists and dicts: the keys to it, joined by dots."""
    if isinstance(tree, dict):
        return [name for key, each in tree.items() for name in flat_names(f"{prefix}.{key}".strip("."), each)]
    if isinstance(tree, Sequence):
        return [name for number, each in enumerate(tree, start=1) for name in flat_names(f"{prefix}.{number}", each)]
    return [prefix]
