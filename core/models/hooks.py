"""Hook points: named tensors inside a model that the current call may read or replace.

A hook belongs to a call, not to the module: threads share loaded models, so a hook that is registered on a module would
change what the others compute. Hooks are kept in a ``ContextVar``, so every thread has its own, and a thread started
inside the block does not inherit them. The only exception is ``HookPoint.permanent``, set while a model is built:

    with hooks({"decoder_layers.0.cross_attention.hook_pattern": print}):
        logits = model(src, tgt_in)

Names follow TransformerLens where it has the point (``hook_q``, ``hook_attn_scores``, ``hook_pattern``, ``hook_z``,
``hook_resid_pre`` …), after the path of the module; ``hook_mask``, ``hook_bias``, ``hook_out``, ``hook_skip``,
``hook_resid_cross`` and the states of recurrent models are ours. In a decoder layer ``hook_resid_mid`` comes before
cross-attention. ``hook_names(model)`` lists all.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token

import torch
from torch import nn

from core.storage.error_messages import short_repr
from core.storage.errors import InputError

Hook = Callable[[torch.Tensor], torch.Tensor | None]  # returns a replacement, or None to leave the tensor as it is


class _Active(dict[str, tuple[Hook, ...]]):
    """The hooks of a block by the names of their points.

    Attributes:
        called: the names of the points of each model that the block has called.
    """

    def __init__(self, by_name: Mapping[str, tuple[Hook, ...]]) -> None:
        super().__init__(by_name)
        self.called: set[frozenset[str]] = set()


_hooks: ContextVar[_Active] = ContextVar("hooks", default=_Active({}))  # noqa: B039 - never changed
_step: ContextVar[int] = ContextVar("step", default=0)


class HookPoint:
    """A named identity function.

    It is not an ``nn.Module``, because calling a module costs time at every point of every step.

    Attributes:
        name: path of the module and the point in the model, set by ``name_hook_points``.
        names: those of all points of the model.
        permanent: a hook that is part of the model, such as a bug to be studied; it runs before those of the call.
    """

    __slots__ = ("name", "names", "permanent")

    def __init__(self) -> None:
        self.name, self.names = "", frozenset[str]()
        self.permanent: Hook | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x``, or its replacement by the hooks of this point."""
        active = _hooks.get()
        if not active and self.permanent is None:
            return x
        if self.permanent is not None:
            x = _replaced(x, self.permanent)
        if active:
            active.called.add(self.names)
        for hook in active.get(self.name, ()):
            x = _replaced(x, hook)
        return x

    @property
    def is_used(self) -> bool:
        """Whether any hook is active here; if not, callers may skip computing the tensor, as fused attention does."""
        return self.permanent is not None or self.name in _hooks.get()


def hooks(by_name: Mapping[str, Hook]) -> AbstractContextManager[None]:
    """Run hooks at the points of these names inside the block, after those of enclosing blocks.

    Only calls of this thread are affected.

    Raises:
        InputError: the block called models, and none of them has a point of one of these names; see ``hook_names``.
    """
    return _HooksBlock(by_name)


class _HooksBlock(AbstractContextManager[None]):
    """The block of ``hooks``: a class, because Ctrl+C can leave a generator suspended with its hooks still active."""

    def __init__(self, by_name: Mapping[str, Hook]) -> None:
        self._by_name = by_name

    def __enter__(self) -> None:
        self._outer = _hooks.get()
        self._active = _Active(self._outer)
        for name, hook in self._by_name.items():
            self._active[name] = (*self._active.get(name, ()), hook)
        try:
            _hooks.set(self._active)
        except BaseException:  # Ctrl+C, after they were set and before the block
            _hooks.set(self._outer)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _hooks.set(self._outer)
        if self._outer:
            self._outer.called |= self._active.called
        if kind is None:
            _check_names(self._by_name, self._active.called)


def _check_names(names: Iterable[str], called: set[frozenset[str]]) -> None:
    """Raise InputError for a name that no called model has; points outside a model have no names to compare with."""
    known = frozenset[str]().union(*called)
    for name in names if known else ():
        if name not in known:
            nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0)[0]
            raise InputError(
                f"hooks: no model that was called has a point {short_repr(name, 100)}; the nearest name is "
                f"{nearest!r}, and hook_names(model) lists all"
            )


class CallContext:
    """Runs a block with the hooks and the step of the call in which it was made, also later and in another thread."""

    def __init__(self) -> None:
        self._active, self._number = _hooks.get(), _step.get()
        self._tokens: list[tuple[Token[_Active], Token[int]]] = []

    def __enter__(self) -> None:
        self._tokens.append((_hooks.set(self._active), _step.set(self._number)))

    def __exit__(self, *error: object) -> None:
        hooks_before, step_before = self._tokens.pop()
        _hooks.reset(hooks_before)
        _step.reset(step_before)


def name_hook_points(model: nn.Module) -> None:
    """Give every hook point of a model its name: path of the module, dot, attribute."""
    points = dict(_points(model))
    names = frozenset(points)
    for name, point in points.items():
        point.name, point.names = name, names


def hooks_are_active() -> bool:
    """Whether any hook belongs to the current call; permanent ones do not count."""
    return bool(_hooks.get())


def has_permanent_hooks(module: nn.Module) -> bool:
    """Whether a hook point of this module itself, not of its submodules, has a permanent hook."""
    return any(isinstance(each, HookPoint) and each.permanent is not None for each in vars(module).values())


def hook_names(model: nn.Module) -> list[str]:
    """Return the names of a model's hook points, module by module."""
    return [name for name, _ in _points(model)]


def set_step(number: int) -> None:
    """Set the position, from 0, of the first target token of this ``decode`` call; every ``decode`` does so."""
    _step.set(number)


def current_step() -> int:
    """Return the position, from 0, of the first query of the current ``decode`` call; undefined in ``encode``."""
    return _step.get()


def _points(model: nn.Module) -> Iterator[tuple[str, HookPoint]]:
    """Yield the hook points that are attributes of modules, with their names."""
    for path, module in model.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, HookPoint):
                yield (f"{path}.{attribute}" if path else attribute), value


def _replaced(x: torch.Tensor, hook: Hook) -> torch.Tensor:
    replacement = hook(x)
    return x if replacement is None else replacement
