"""A user's model under examination: a function from ids to logits, a batch of its pairs, and optionally its loss."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from core.models import Seq2Seq
from core.storage.errors import InputError
from core.teaching.doctor.attention_calls import AttentionCall, record_lab_attention, record_torch_attention
from core.teaching.doctor.black_box import BlackBox, SpecialIds, lengths

FEW = 8  # number of pairs for checks that need only a few
NUM_PAD = 3  # tokens appended to a source if the maximum length is unknown
HALF = (torch.float16, torch.bfloat16)
HALF_CHANGED = 0.1  # as ``black_box.CHANGED``, of logits in float16 or bfloat16

Forward = Callable[..., Any]
Loss = Callable[[Forward, torch.Tensor, torch.Tensor], torch.Tensor]


class NotCheckableError(Exception):
    """A check cannot be made on this model; the message says why, as a sentence."""


@dataclass(frozen=True)
class LossTrace:
    """The effect of a loss on the logits of a batch, read from its gradient.

    Attributes:
        tgt_in: (B, T) int64, the decoder input; None if the call does not show it.
        labels: (B, T) int64, the token that each position must predict; PAD at positions that do not count.
        gradient: (B, T) float, the weight of each position: the size of the gradient.
        takes_logits: whether the loss normalizes over the vocabulary itself, as ``nn.CrossEntropyLoss`` does.
    """

    tgt_in: torch.Tensor | None
    labels: torch.Tensor
    gradient: torch.Tensor
    takes_logits: bool


class AnyModel(BlackBox):
    """A model called as ``forward(src, tgt_in)``, with a batch of pairs; see ``diagnose``.

    Attributes:
        model: the module with the parameters, or None.
        src: (B, S) int64.
        tgt: (B, T) int64, BOS first.
    """

    def __init__(
        self,
        forward: Forward,
        pairs: tuple[torch.Tensor, torch.Tensor],
        special: SpecialIds,
        *,
        model: nn.Module | None = None,
        loss: Loss | None = None,
        batch_first: bool = True,
    ) -> None:
        owner = getattr(forward, "__self__", None)  # of a bound method, such as model.forward
        self.model = next((each for each in (model, forward, owner) if isinstance(each, nn.Module)), None)
        self.forward, self.loss, self.special, self.batch_first = forward, loss, special, batch_first
        self.src, self.tgt = (self._turned(_checked(*each)) for each in zip(("src", "tgt"), pairs, strict=True))
        if len(self.src) != len(self.tgt):
            raise InputError(f"src has {len(self.src)} rows and tgt has {len(self.tgt)}: both must have one per pair")
        self._given = pairs
        self._check_layout()
        self.num_few = FEW

    @property
    def few(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A few sources (B, S) int64 and their correct decoder inputs (B, T) int64, shifted right."""
        return self.src[: self.num_few], self.tgt_in[: self.num_few]

    @property
    def tgt_in(self) -> torch.Tensor:
        """(B, T) int64: decoder input under teacher forcing, BOS first."""
        return self.tgt[:, :-1]

    def shortest(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the shortest source (1, S) int64, without PAD, and its correct decoder input (1, T) int64."""
        if bool((self.src[:, 0] == self.special.pad).any()):
            raise NotCheckableError("sources are padded on the left, where PAD moves all positions.")
        of_src = lengths(self.src, self.special.pad)
        row = int(of_src.argmin())
        of_tgt = int(lengths(self.tgt, self.special.pad)[row])
        return self.src[row : row + 1, : int(of_src[row])], self.tgt[row : row + 1, : max(2, of_tgt)][:, :-1]

    def room_after(self, length: int) -> int:
        """Return how many tokens can be appended to a source: up to the longest source, or a few beyond."""
        return self.src.shape[1] - length or NUM_PAD

    @torch.no_grad()
    def logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V) float under teacher forcing.

        Raises:
            NotCheckableError: the model does not return logits of this shape.
        """
        output = _logits_of(self.forward(self._turned(src), self._turned(tgt_in)))
        logits = self._turned(output)
        if logits.shape[:2] != tgt_in.shape:
            expected = "(B, T, V)" if self.batch_first else "(T, B, V)"
            raise NotCheckableError(
                f"forward returns logits of shape {tuple(output.shape)} for a decoder input of shape "
                f"{tuple(self._turned(tgt_in).shape)}; they must be {expected}. See batch_first."
            )
        if logits.dtype in HALF:
            self.tolerance = HALF_CHANGED
        return logits.float()

    def attention_calls(self, src: torch.Tensor, tgt_in: torch.Tensor) -> list[AttentionCall]:
        """Run pairs through the model; return the calls of its ``nn.MultiheadAttention``, or of the lab's modules."""
        if isinstance(self.model, Seq2Seq):
            return record_lab_attention(self.model, src, tgt_in)[1]
        if self.model is None:
            return []
        if tgt_in.shape[1] == src.shape[1]:  # tell the blocks apart by the lengths
            tgt_in = tgt_in[:, :-1] if tgt_in.shape[1] > 2 else torch.cat([tgt_in, tgt_in[:, -1:]], dim=1)
        return record_torch_attention(
            self.model, lambda: self.logits(src, tgt_in), src_length=src.shape[1], tgt_length=tgt_in.shape[1]
        )

    def lacks_positions(self) -> bool:
        """Whether the model has no positional information: order changes nothing, but tokens do."""
        return True

    def training_loss(self) -> tuple[torch.Tensor, str]:
        """Return the differentiable loss of the batch, and the beginning of sentences about it, "" for the user's loss.

        Raises:
            NotCheckableError: the loss is not a single number.
        """
        if self.loss is None:
            logits = self._turned(_logits_of(self.forward(*(self._turned(each) for each in (self.src, self.tgt_in)))))
            loss = F.cross_entropy(
                logits.float().flatten(0, 1), self.tgt[:, 1:].flatten(), ignore_index=self.special.pad
            )
            return loss, "With cross-entropy in place of your loss: "
        loss = self.loss(self.forward, *self._given)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise NotCheckableError(f"loss returns {_described(loss)}; it must return one number, as a tensor.")
        return loss.reshape(()), ""

    def trace_loss(self, *, with_pad: bool = False) -> LossTrace:
        """Call the loss with constant logits instead of the model's, and read its effect from the gradient.

        Args:
            with_pad: append a column of PAD to the targets.

        Raises:
            NotCheckableError: there is no loss, or it does not call the whole model exactly once.
        """
        if self.loss is None:
            raise NotCheckableError("pass loss=, a function of forward, src and tgt.")
        calls: list[tuple[list[torch.Tensor], torch.Tensor]] = []

        def replaced(args: tuple, kwargs: Mapping[str, Any], output: Any) -> torch.Tensor:
            logits = _logits_of(output)
            constant = torch.full_like(logits, 1 / logits.shape[-1]).requires_grad_()  # its log is finite too
            ids = [each for each in (*args, *kwargs.values()) if _is_ids(each)]
            calls.append((ids, constant))
            return constant if isinstance(output, torch.Tensor) else _with_logits(output, constant)

        with self._intercepted(replaced) as forward:
            src, tgt = self._given
            if with_pad:
                tgt = self._turned(F.pad(self._turned(tgt), (0, 1), value=self.special.pad))
            loss = self.loss(forward, src, tgt)
        if len(calls) != 1:
            raise NotCheckableError(f"the loss calls its first argument {len(calls)} times; it must call it once.")
        ids, constant = calls[0]
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise NotCheckableError(f"loss returns {_described(loss)}; it must return one number that has a gradient.")
        gradient = self._turned(torch.autograd.grad(loss.reshape(()), constant)[0])
        size = gradient.abs().sum(dim=-1)
        labels = torch.where(size > 0, gradient.argmin(dim=-1), self.special.pad)
        tgt_in = self._turned(ids[1]) if len(ids) > 1 else None
        if tgt_in is not None and tgt_in.shape != labels.shape:
            raise NotCheckableError("in the loss, logits and decoder input do not have the same length.")
        return LossTrace(
            tgt_in=tgt_in,
            labels=labels,
            gradient=size,
            takes_logits=bool((gradient > 0).any()),
        )

    def _turned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert a tensor from the model's layout to batch first, or back."""
        return tensor if self.batch_first else tensor.transpose(0, 1)

    def _check_layout(self) -> None:
        """Raise InputError if BOS is along the wrong dimension; prepend it to targets that lack it."""
        bos = self.special.bos
        if bool((self.tgt[:, 0] == bos).all()):
            return
        if self.tgt.shape[1] > 1 and bool((self.tgt[0] == bos).all()):
            layout = "(T, B)" if self.batch_first else "(B, T)"
            raise InputError(
                f"batch_first={self.batch_first}, but BOS ({bos}) fills the first row of tgt, which looks like "
                f"{layout}, so pass batch_first={not self.batch_first}"
            )
        first = self.tgt[0, 0].item()
        if len(self.tgt) > 1 and bool((self.tgt[:, 0] == first).all()):
            warnings.warn(f"every target starts with {first}, not with bos={bos}, which is put before it", stacklevel=4)
        self.tgt = F.pad(self.tgt, (1, 0), value=bos)

    @contextmanager
    def _intercepted(self, replaced: Callable[[tuple, Mapping[str, Any], Any], Any]) -> Iterator[Forward]:
        """Replace the model's result inside the block; yields the function to call instead of ``forward``."""
        if isinstance(self.forward, nn.Module):
            handle = self.forward.register_forward_hook(
                lambda _, args, kwargs, output: replaced(args, kwargs, output), with_kwargs=True
            )
            try:
                yield self.forward
            finally:
                handle.remove()
        else:
            yield lambda *args, **kwargs: replaced(args, kwargs, self.forward(*args, **kwargs))


@contextmanager
def examined(model: nn.Module | None) -> Iterator[None]:
    """Put a model into evaluation mode inside the block; its modes and the random generators are restored.

    PyTorch's fused encoder layers are turned off: they remove PAD, and the decoder's mask would no longer fit.
    """
    modes = {module: module.training for module in model.modules()} if model else {}
    fused = torch.backends.mha.get_fastpath_enabled()
    gpus = sorted({each.device.index for each in model.parameters() if each.is_cuda}) if model else []
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.random.fork_rng(devices=gpus):
            if model:
                model.eval()
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def restored(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Restore weights, gradients and the optimizer's state after the block."""
    owned = [each for group in optimizer.param_groups for each in group["params"]]
    tensors = list(dict.fromkeys([*model.parameters(), *model.buffers(), *owned]))
    weights = [each.detach().clone() for each in tensors]
    gradients = [each.grad for each in tensors]
    state = {each: _copied(of) for each, of in optimizer.state.items()}
    try:
        for each in tensors:
            each.grad = None
        yield
    finally:
        with torch.no_grad():
            for each, weight, gradient in zip(tensors, weights, gradients, strict=True):
                each.copy_(weight)
                each.grad = gradient
        optimizer.state.clear()
        optimizer.state.update(state)


def tokens_counted(trace: LossTrace) -> int:
    """Return how many positions count in a loss."""
    return int((trace.gradient > 0).sum())


def per_token(loss: float, vocab_size: int, tokens: int) -> float:
    """Return an untrained model's loss per token; a sum over the tokens is divided by their number."""
    expected = math.log(vocab_size)
    return min((loss, loss / max(1, tokens)), key=lambda each: abs(each - expected))


def _checked(name: str, ids: Any) -> torch.Tensor:
    """Return ids, named in the message, if they are (B, T) integers; InputError otherwise."""
    if not _is_ids(ids) or not ids.numel():
        raise InputError(f"{name} is {_described(ids)}; it must be a tensor (B, T) int64 with at least one pair")
    return ids


def _is_ids(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 2 and value.dtype in (torch.int64, torch.int32)


def _logits_of(output: Any) -> torch.Tensor:
    """Return the logits in a model's result: a tensor, the first of a tuple, or its attribute ``logits``."""
    output = getattr(output, "logits", output)
    output = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(output, torch.Tensor) or output.ndim != 3 or not output.is_floating_point():
        raise NotCheckableError(f"forward returns {_described(output)}; it must return logits (B, T, V).")
    return output


def _with_logits(output: Any, logits: torch.Tensor) -> Any:
    """Return a model's output with other logits."""
    if isinstance(output, tuple | list):
        return (logits, *output[1:])
    output.logits = logits
    return output


def _copied(state: Any) -> Any:
    """Return a copy of an optimizer's state of one parameter."""
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    return state.clone() if isinstance(state, torch.Tensor) else state


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}"
