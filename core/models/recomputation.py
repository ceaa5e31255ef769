"""Gradient checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"), layer by layer.

A layer keeps its inputs for the backward pass, and computes its activations again when they are needed.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from core.models.hooks import CallContext


class RecomputedModule(nn.Module):
    """A module that can keep its inputs for the backward pass instead of its activations.

    Attributes:
        is_recomputed: whether it does so in training; see ``recompute_layers``.
        generator: source of the random draws in the module, which are repeated; None is PyTorch's global one.
    """

    is_recomputed = False
    generator: torch.Generator | None = None

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the module."""
        # A traced graph must not contain the second computation; whoever runs it saves what it needs.
        if self.is_recomputed and self.training and torch.is_grad_enabled() and not torch.compiler.is_exporting():
            return _checkpoint(partial(super().__call__, **named), self.generator, *inputs)
        return super().__call__(*inputs, **named)


def recompute_layers(model: nn.Module) -> None:
    """Let every layer of a model compute its activations again in the backward pass; a model may have no such layer."""
    for module in model.modules():
        if isinstance(module, RecomputedModule):
            module.is_recomputed = True


class _SameDraws:
    """Computes with the random draws and the hooks of the call in which it was made; may be entered repeatedly."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator, self._call = generator, CallContext()
        self._state = None if generator is None else generator.get_state()
        self._later: torch.Tensor | None = None

    def __enter__(self) -> None:
        self._call.__enter__()
        if self._generator is not None and self._state is not None:
            self._later = self._generator.get_state()
            self._generator.set_state(self._state)

    def __exit__(self, *error: object) -> None:
        if self._generator is not None and self._later is not None:
            self._generator.set_state(self._later)
        self._call.__exit__(*error)


def _checkpoint(call: Callable[..., Any], generator: torch.Generator | None, *inputs: Any) -> Any:
    """Call a function whose activations are computed again in the backward pass."""
    return checkpoint(call, *inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), _SameDraws(generator)))
