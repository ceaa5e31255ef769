"""What a training loss does to a model's logits, read from its gradient."""

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from core.interpret.any_module.calling import Forward, described, logits_of, named_arguments
from core.teaching.doctor.black_box import NotCheckableError

NO_GRADIENT = "the loss has no gradient: it is computed under no_grad(), from detached logits, or from argmax."
CERTAIN = 1e3  # a logit beside which all others vanish
FAR = 1.5  # times the second largest gradient; of a label that no sign shows


@dataclass(frozen=True)
class LossTrace:
    """The effect of a loss on the logits of a batch.

    Attributes:
        src: (B, S) int64, the source that the model reads; None if the call does not show it.
        tgt_in: (B, T) int64, the decoder input; None if the call does not show it.
        labels: (B, T) int64, the token that each position must predict; PAD at positions that do not count. None if the
            gradient does not show it.
        gradient: (B, T) float, the weight of each position: the size of the gradient.
        takes_logits: whether the loss normalizes over the vocabulary itself, as ``nn.CrossEntropyLoss`` does.
        uniform: the loss if all tokens are equally likely everywhere.
        rises: whether the loss rises where a label becomes more likely.
        is_mixed: whether the loss takes logits of several positions for those of one.
    """

    src: torch.Tensor | None
    tgt_in: torch.Tensor | None
    labels: torch.Tensor | None
    gradient: torch.Tensor
    takes_logits: bool
    uniform: float
    rises: bool
    is_mixed: bool

    @classmethod
    def of(
        cls,
        loss: float,
        gradient: torch.Tensor,
        pad: int,
        *,
        src: torch.Tensor | None,
        tgt_in: torch.Tensor | None,
        is_mixed: bool,
    ) -> Self:
        """Return what the gradient (B, T, V) of a loss at constant logits shows; PAD of targets is ``pad``.

        Raises:
            NotCheckableError: decoder input and gradient do not have the same length.
        """
        size = gradient.abs().sum(dim=-1)
        labels, is_clear = _labels(gradient)
        at_label = gradient.gather(-1, labels[..., None])[..., 0][size > 0]
        if tgt_in is not None and tgt_in.shape != size.shape:
            raise NotCheckableError("in the loss, logits and decoder input do not have the same length.")
        return cls(
            src=src,
            tgt_in=tgt_in,
            labels=torch.where(size > 0, labels, pad) if is_clear else None,
            gradient=size,
            takes_logits=bool((gradient > 0).any() and (gradient < 0).any()),
            uniform=loss,
            rises=bool(at_label.numel()) and bool((at_label > 0).all()),
            is_mixed=is_mixed,
        )


@dataclass(frozen=True)
class ConstantLogits:
    """A call of a loss in which every token is equally likely, or one is certain, whatever the model returns.

    Attributes:
        arguments: those with which the loss called the model, by name.
        logits: the logits that the loss got, a leaf that has a gradient.
        loss: what the loss returned.
    """

    arguments: dict[str, Any]
    logits: torch.Tensor
    loss: Any

    @classmethod
    def call(cls, forward: Forward, loss: Callable[[Forward], Any], *, certain: torch.Tensor | None = None) -> Self:
        """Call a loss, a function of the model, with constant logits in place of the model's.

        Args:
            certain: int64, a token of each position that is certain, in the model's layout; None if none is.

        Raises:
            NotCheckableError: the loss does not call the whole model exactly once.
        """
        calls: list[tuple[dict[str, Any], torch.Tensor]] = []

        def replaced(args: tuple, kwargs: Mapping[str, Any], output: Any) -> Any:
            logits = logits_of(output)
            size = logits.shape[-1]
            is_log = bool(logits.detach().logsumexp(dim=-1).abs().max() < 1e-2)
            uniform = -math.log(size) if is_log else 1 / size  # as logits both mean that all tokens are equally likely
            constant = torch.full_like(logits, uniform)
            if certain is not None:
                constant.scatter_(-1, certain[..., None], CERTAIN)
            constant.requires_grad_()
            calls.append((named_arguments(forward, args, kwargs), constant))
            return constant if isinstance(output, torch.Tensor) else _with_logits(output, constant)

        with _intercepted(forward, replaced) as observed:
            value = loss(observed)
        if len(calls) != 1:
            raise NotCheckableError(f"the loss calls its first argument {len(calls)} times; it must call it once.")
        return cls(*calls[0], value)

    def gradient(self) -> torch.Tensor:
        """Return the gradient of the loss with respect to the logits, in the model's layout.

        Raises:
            NotCheckableError: the loss is not a number computed from the logits.
        """
        loss = self.loss
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise NotCheckableError(f"the loss returns {described(loss)}; it must return one number, as a tensor.")
        if not loss.requires_grad:
            raise NotCheckableError(NO_GRADIENT)
        gradient = torch.autograd.grad(loss.reshape(()), self.logits, allow_unused=True)[0]
        if gradient is None:
            raise NotCheckableError("the loss is not computed from the logits, but inside the model; pass your own.")
        return gradient


@contextmanager
def _intercepted(forward: Forward, replaced: Callable[[tuple, Mapping[str, Any], Any], Any]) -> Iterator[Forward]:
    """Replace the model's result inside the block; yields the function to call instead of ``forward``."""
    if isinstance(forward, nn.Module):
        handle = forward.register_forward_hook(
            lambda _, args, kwargs, output: replaced(args, kwargs, output), with_kwargs=True
        )
        try:
            yield forward
        finally:
            handle.remove()
    else:
        yield lambda *args, **kwargs: replaced(args, kwargs, forward(*args, **kwargs))


def _with_logits(output: Any, logits: torch.Tensor) -> Any:
    """Return a model's output with other logits."""
    if isinstance(output, tuple | list):
        return (logits, *output[1:])
    if isinstance(output, MutableMapping):
        output["logits"] = logits
    else:
        output.logits = logits
    return output


def positions_are_mixed(gradient: torch.Tensor) -> bool:
    """Return whether a gradient (B, T, V), or (T, B, V), shows labels only after ``reshape``.

    This is the case if a loss reshapes (B, T, V) to (B, V, T), or (B, V, T) to (B, T, V), in place of transposing.
    """
    if _labels(gradient)[1]:
        return False
    end = int((gradient != 0).any(dim=-1).any(dim=0).nonzero().max()) + 1  # a language model's last logits are cut off
    gradient = gradient[:, :end]
    first, second, size = gradient.shape
    reshaped = gradient.mT.reshape(first, second, size), gradient.reshape(first, size, second).mT
    return any(_labels(each)[1] for each in reshaped)


def _labels(gradient: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Return the label of each position, (B, T) int64, and whether a gradient (B, T, V) that is not 0 shows it.

    The label is the only token whose gradient has its sign, as in cross-entropy over the vocabulary or over each token
    by itself; else the one with by far the largest gradient.
    """
    signs = torch.stack([gradient < 0, gradient > 0])  # (2, B, T, V)
    is_alone = signs.sum(dim=-1) == 1
    falling, rising = signs.int().argmax(dim=-1)
    alone = torch.where(is_alone[0], falling, rising)
    largest = gradient.abs().topk(2, dim=-1)
    by_sign = is_alone[0] ^ is_alone[1]
    is_clear = by_sign | (largest.values[..., 0] > FAR * largest.values[..., 1])
    return torch.where(by_sign, alone, largest.indices[..., 0]), bool((is_clear | (gradient == 0).all(dim=-1)).all())
