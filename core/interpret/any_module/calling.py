"""How a user's model is called: with ids as its own layout has them, by position, or by the names of Hugging Face."""

import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeGuard

import torch
from torch import nn

from core.storage.error_messages import short_repr
from core.storage.errors import InputError

Forward = Callable[..., Any]
MASKS = ("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")
NAMES = {ids for ids, _ in MASKS}
ANY = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class ModelOutputError(InputError):
    """A model does not return logits; the message says what it returns, as a sentence."""


@dataclass(frozen=True)
class ModelCall:
    """Calls a model with batch-first ids: ``forward(src, tgt_in)``, or ``forward(ids)`` of a language model.

    Attributes:
        forward: an ``nn.Module`` or a function. If it has the arguments ``input_ids`` and ``decoder_input_ids``, it is
            called by these names. So is a module that takes any arguments and passes them to such a model, as
            ``DistributedDataParallel`` and ``torch.compile`` make it.
        batch_first: False if its ids are (S, B) and (T, B), and its logits (T, B, V).
        hidden: ids of sources that the attention mask of models called by name hides, such as PAD; none passes no mask.
        hidden_target: likewise of decoder inputs.
    """

    forward: Forward
    batch_first: bool = True
    hidden: tuple[int, ...] = ()
    hidden_target: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_callable("forward", self.forward)

    def output(self, src: torch.Tensor, tgt_in: torch.Tensor | None = None) -> Any:
        """Return what the model returns.

        Args:
            src: (B, S) int64; of a language model its ids.
            tgt_in: (B, T) int64; None calls the model with ``src`` alone.
        """
        given = self.turned(src)
        if tgt_in is None:
            return self.forward(given)
        target = self.turned(tgt_in)
        if takes_names(self.forward):
            named = {"input_ids": given, "decoder_input_ids": target}
            for (ids, mask), hidden in zip(MASKS, (self.hidden, self.hidden_target), strict=True):
                if hidden and takes(self.forward, mask):
                    named[mask] = (~torch.isin(named[ids], given.new_tensor(hidden))).long()
            return self.forward(**named)
        return self.forward(given, target)

    def logits(self, src: torch.Tensor, tgt_in: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits (B, T, V) float, in the precision that the model returns.

        Raises:
            ModelOutputError: the model does not return logits of this shape.
        """
        output = logits_of(self.output(src, tgt_in))
        logits, read = self.turned(output), src if tgt_in is None else tgt_in
        if logits.shape[:2] != read.shape:
            expected = "(B, T, V)" if self.batch_first else "(T, B, V)"
            name = "ids" if tgt_in is None else "a decoder input"
            is_last_only = logits.shape[:2] == (len(read), 1)
            hint = (
                "Pass a function that returns those of all positions, and model=."
                if is_last_only
                else "See batch_first."
            )
            raise ModelOutputError(
                f"forward returns logits of shape {tuple(output.shape)} for {name} of shape "
                f"{tuple(self.turned(read).shape)}; they must be {expected}. {hint}"
            )
        return logits

    def ids_in(self, arguments: Mapping[str, Any], count: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the source (B, S) and the decoder input (B, T) in a call of the model, None where it shows none.

        They are known by their names in Hugging Face's models, otherwise by their order.

        Args:
            arguments: those of the call, by name.
            count: 2, or 1 for a language model, whose ids are the decoder input.
        """
        signature, names = signature_of(self.forward), ("input_ids", "decoder_input_ids")[:count]
        if signature is not None and set(names) <= set(signature.parameters):
            found = [arguments.get(name) for name in names]
        else:
            found = [each for each in arguments.values() if is_ids(each)]
            found = found[:count] if len(found) >= count else [None] * count
        src, tgt_in = (self.turned(each) if is_ids(each) else None for each in (found[0], found[-1]))
        return src if count > 1 else None, tgt_in

    def masked_as(self, arguments: Mapping[str, Any], pad: int) -> tuple[Self, dict[str, str]]:
        """Return the call that hides what the masks in a call by Hugging Face's names hide; without a mask, nothing.

        Args:
            arguments: those of the call, by name.
            pad: the id of PAD in sources, which is hidden if the call does not show it.

        Returns:
            The call, and why a mask is not passed, as a sentence by the name of the mask.
        """
        if not takes_names(self.forward):
            return self, {}
        doubts, found = dict[str, str](), list[tuple[int, ...] | None]()
        for (read, name), unseen in zip(MASKS, ({pad}, set[int]()), strict=True):
            try:
                found.append(_hidden_ids(arguments.get(read), arguments.get(name), unseen))
            except InputError as error:
                doubts[name] = f"{name} in the loss {error}"
                found.append(None)
        source, target = found
        return replace(self, hidden=self.hidden if source is None else source, hidden_target=target or ()), doubts

    def turned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert a tensor from the model's layout to batch first, or back."""
        return tensor if self.batch_first else tensor.transpose(0, 1)


def _hidden_ids(ids: Any, mask: Any, unseen: set[int]) -> tuple[int, ...] | None:
    """Return the ids that a mask hides, and of ``unseen`` those that it does not show; None if there are no ids.

    Raises:
        InputError: the mask does not hide all positions of an id, or none.
    """
    if not is_ids(ids):
        return None
    mask = torch.ones_like(ids) if mask is None else mask
    if not isinstance(mask, torch.Tensor) or mask.shape != ids.shape:
        raise InputError(f"is {described(mask)}, not one number for each id.")
    hidden, visible = (set(ids[each].unique().tolist()) for each in (mask == 0, mask != 0))
    if hidden & visible:
        raise InputError("hides some positions of an id and not others.")
    return tuple(sorted(hidden | (unseen - visible)))


def module_of(forward: Forward, model: nn.Module | None = None) -> nn.Module | None:
    """Return the module with the parameters: ``model``, or ``forward`` if it is one or a method of one."""
    owner = getattr(forward, "__self__", None)  # of a bound method, such as model.forward
    return next((each for each in (model, forward, owner) if isinstance(each, nn.Module)), None)


def check_callable(name: str, forward: Any) -> None:
    """Raise InputError for what is no model and no function, such as the class of a model."""
    if isinstance(forward, type):
        raise InputError(f"{name} is the class {forward.__name__}; it must be a model, an object of that class")
    if not callable(forward):
        raise InputError(f"{name} is {described(forward)}; it must be a model, or a function that calls one")


def takes_names(forward: Forward) -> bool:
    """Whether a model has the arguments of Hugging Face's sequence-to-sequence models."""
    found = signature_of(forward)
    return found is not None and NAMES.issubset(found.parameters)


def takes(forward: Forward, name: str) -> bool:
    """Whether a model has an argument of that name, or takes any names."""
    found = signature_of(forward)
    kinds = {} if found is None else {each.name: each.kind for each in found.parameters.values()}
    return name in kinds or inspect.Parameter.VAR_KEYWORD in kinds.values()


def signature_of(forward: Forward) -> inspect.Signature | None:
    """Return the arguments of a model; of a module that takes any, those of the one to which it passes them."""
    try:
        found = inspect.signature(forward.forward if isinstance(forward, nn.Module) else forward)
    except (TypeError, ValueError):
        return None
    owner = module_of(forward)
    if owner is None or not all(each.kind in ANY for each in found.parameters.values()):
        return found
    inside = [each for child in owner.children() if (each := signature_of(child)) is not None]
    by_name = [each for each in inside if NAMES.issubset(each.parameters)]
    return (by_name or (inside if len(inside) == 1 else [found]))[0]


def named_arguments(forward: Forward, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the model's own names and in its own order; where it has none, as given."""
    signature = signature_of(forward)
    try:
        given = {} if signature is None else signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        given = {}
    if signature is None or not given:
        return {str(at): each for at, each in enumerate(args)} | dict(kwargs)
    found = dict[str, Any]()
    for name, value in given.items():
        kind = signature.parameters[name].kind
        if kind == inspect.Parameter.VAR_KEYWORD:
            found |= value
        elif kind == inspect.Parameter.VAR_POSITIONAL:
            found |= {f"{name}.{at}": each for at, each in enumerate(value)}
        else:
            found[name] = value
    return found


def logits_of(output: Any) -> torch.Tensor:
    """Return the logits in a model's result: a tensor, the first of a tuple, or its ``logits``."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    logits = logits[0] if isinstance(logits, tuple | list) and logits else logits
    if not isinstance(logits, torch.Tensor) or logits.ndim != 3 or not logits.is_floating_point():
        raise ModelOutputError(f"forward returns {described(output)}; it must return logits (B, T, V).")
    return logits


def checked_ids(name: str, ids: Any) -> torch.Tensor:
    """Return ids, named in the message, if they are (B, T) integers; InputError otherwise."""
    if not is_ids(ids) or not ids.numel():
        raise InputError(f"{name} is {described(ids)}; it must be a tensor (B, T) int64 with at least one pair")
    return ids


def checked_number(name: str, value: Any, least: int = -sys.maxsize, most: int = sys.maxsize) -> int:
    """Return an integer of Python, NumPy or PyTorch; InputError if it is none, or out of bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name}={short_repr(value)} must be a whole number") from None
    if not least <= number <= most:
        bounds = f"at least {least}" if most == sys.maxsize else f"from {least} to {most:,}"
        raise InputError(f"{name}={number} must be {bounds}")
    return number


def is_ids(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a matrix of ids."""
    return isinstance(value, torch.Tensor) and value.ndim == 2 and value.dtype in (torch.int64, torch.int32)


def described(value: Any) -> str:
    """Return the shape and type of a tensor, or the type of another value, with an article."""
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' or name == 'ndarray' else 'a'} {name}"
