"""Hook points: named tensors inside a model that the current call may read or replace.

A hook belongs to a call, not to the module: threads share loaded models, so a hook that is registered on a module would
change what the others compute. The hooks of the current call are in a context variable, one a thread:

    with hooks({"decoder_layers.0.cross_attention.hook_pattern": print}):
        logits = model(src, tgt_in)

The points are named as in TransformerLens: ``hook_q``, ``hook_k``, ``hook_v``, ``hook_attn_scores``, ``hook_pattern``,
``hook_z``, ``hook_resid_pre``, ``hook_resid_mid``, ``hook_resid_post``, each after the path of its module.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

Hook = Callable[[torch.Tensor], torch.Tensor | None]  # returns a replacement, or None to leave the tensor as it is

_hooks: ContextVar[Mapping[str, tuple[Hook, ...]] | None] = ContextVar("hooks", default=None)
_step: ContextVar[int] = ContextVar("step", default=0)


class HookPoint:
    """An identity with a name. A plain object: as an ``nn.Module`` it would cost five times as much when unused.

    Attributes:
        name: path of the module and the point in the model, set by ``name_hook_points``.
        permanent: a hook that is part of the model, such as a bug to be studied; it runs before those of the call.
    """

    __slots__ = ("name", "permanent")

    def __init__(self) -> None:
        self.name = ""
        self.permanent: Hook | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x``, or what the hooks of this point replace it with."""
        active = _hooks.get()
        if active is None and self.permanent is None:
            return x
        if self.permanent is not None:
            x = _replaced(x, self.permanent)
        for hook in (active or {}).get(self.name, ()):
            x = _replaced(x, hook)
        return x

    @property
    def is_used(self) -> bool:
        """Whether a hook of this call reads the tensor, so that it has to be computed."""
        active = _hooks.get()
        return self.permanent is not None or (active is not None and self.name in active)


@contextmanager
def hooks(by_name: Mapping[str, Hook]) -> Iterator[None]:
    """Run hooks at the points of these names inside the block, after those of enclosing blocks.

    Only calls of this thread are affected. Names that a model does not have are ignored; see ``hook_names``.
    """
    outer = _hooks.get() or {}
    token = _hooks.set({**outer, **{name: (*outer.get(name, ()), hook) for name, hook in by_name.items()}})
    try:
        yield
    finally:
        _hooks.reset(token)


def name_hook_points(model: nn.Module) -> None:
    """Give every hook point of a model its name: path of the module, dot, attribute."""
    for path, module in model.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, HookPoint):
                value.name = f"{path}.{attribute}" if path else attribute


def hook_names(model: nn.Module) -> list[str]:
    """Return the names of a model's hook points, module by module."""
    return [point.name for module in model.modules() for point in vars(module).values() if isinstance(point, HookPoint)]


def set_step(number: int) -> None:
    """Note how many target tokens came before those that are decoded next; models do so in ``decode``."""
    _step.set(number)


def current_step() -> int:
    """Return the step of the first query of the current ``decode`` call, from 0, for hooks that depend on it."""
    return _step.get()


def _replaced(x: torch.Tensor, hook: Hook) -> torch.Tensor:
    replacement = hook(x)
    return x if replacement is None else replacement
