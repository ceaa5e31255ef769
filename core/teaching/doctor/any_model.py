"""A user's model under examination: a function from ids to logits, a batch of its pairs, and optionally its loss."""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from core.interpret.any_module.attention_calls import AttentionCall, record_lab_attention, record_torch_attention
from core.interpret.any_module.calling import (
    Forward,
    ModelCall,
    checked_ids,
    described,
    module_of,
)
from core.interpret.any_module.function_calls import FunctionCalls
from core.interpret.any_module.kept_states import check_not_sharded, computing_in
from core.models import Seq2Seq
from core.storage.errors import InputError
from core.teaching.doctor.black_box import (
    ROUNDING,
    BlackBox,
    NotCheckableError,
    Rounding,
    SpecialIds,
    largest_change,
    lengths,
)
from core.teaching.doctor.loss_trace import ConstantLogits, LossTrace, positions_are_mixed

FEW = 8  # number of pairs for checks that need only a few
NUM_PAD = 3  # tokens appended to a source if the maximum length is unknown
COARSE = Rounding(0.1, 0.1)  # of logits in 16 bits, whose two calls are compared but nothing else
CLOSE = 0.5  # standard deviations of the logits, between the same model in 16 bits and in float64
FAR = 1.5  # times the second largest gradient; of a label that no sign shows

IN_PLACE = "With cross-entropy in place of your loss: "

Loss = Callable[..., torch.Tensor]


class TrainingStepError(InputError):
    """A loss makes a training step, which would change the optimizer."""

    def __init__(self) -> None:
        super().__init__("loss makes a training step; it must only return the loss, on which training calls backward")


class AnyModel(BlackBox):
    """A model called as ``forward(src, tgt_in)``, with a batch of pairs; see ``diagnose``.

    Attributes:
        model: the module with the parameters, or None.
        src: (B, S) int64.
        tgt: (B, T) int64, BOS first.
        mask_doubts: why masks that training passes are not passed in the checks, as sentences by the name of the mask.

    Args:
        given: sources and targets, as the loss gets them.

    Raises:
        InputError: the model is sharded by FSDP, or the ids are no pairs.
    """

    def __init__(
        self,
        forward: Forward,
        given: tuple[torch.Tensor, ...],
        special: SpecialIds,
        *,
        model: nn.Module | None = None,
        loss: Loss | None = None,
        batch_first: bool | None = None,
    ) -> None:
        self.model = module_of(forward, model)
        check_not_sharded(self.model)
        self.forward, self.loss, self.special = forward, loss, special
        self._given = tuple(_usable_by_backward(each) for each in given)
        self.num_few, self.mask_doubts = FEW, dict[str, str]()
        self._take(batch_first)
        self.call = ModelCall(forward, self.batch_first, (self.special.src_pad,))

    def _take(self, batch_first: bool | None) -> None:
        """Read the pairs that were given."""
        src, tgt = (checked_ids(*each) for each in zip(("src", "tgt"), self._given, strict=True))
        self.batch_first = _batch_first(tgt, self.special.bos) if batch_first is None else batch_first
        self.src, self.tgt = self.turned(src), self.turned(tgt)
        if len(self.src) != len(self.tgt):
            raise InputError(f"src has {len(self.src)} rows and tgt has {len(self.tgt)}: both must have one per pair")
        self._check_layout()
        self._read_pad()

    @property
    def few(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A few sources (B, S) int64 and their correct decoder inputs (B, T) int64, shifted right."""
        return self.src[: self.num_few], self.tgt_in[: self.num_few]

    @property
    def is_real(self) -> torch.Tensor:
        """Where the targets of ``few`` are not PAD, (B, T) bool."""
        return self.tgt[: self.num_few, 1:] != self.special.tgt_pad

    @property
    def tgt_in(self) -> torch.Tensor:
        """(B, T) int64: decoder input under teacher forcing, BOS first."""
        return self.tgt[:, :-1]

    @property
    def sides(self) -> dict[str, torch.Tensor]:
        """The ids that were given, (B, S) or (B, T) int64 by the name of the argument."""
        return {"src": self.src, "tgt": self.tgt}

    @property
    def targets(self) -> torch.Tensor:
        """(B, T) int64: the tokens that training predicts."""
        return self.tgt[:, 1:]

    def begun(self, src: torch.Tensor, decoded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sources (B, S), and what was decoded (B, T) after the token that the decoder reads first."""
        if not bool((decoded[:, 0] == self.special.bos).all()):
            decoded = F.pad(decoded, (1, 0), value=self.special.bos)
        return src, decoded

    def shortest(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the shortest source (1, S) int64, without PAD, and its correct decoder input (1, T) int64."""
        if bool((self.src[:, 0] == self.special.src_pad).any()):
            raise NotCheckableError("sources are padded on the left, where PAD moves all positions.")
        of_src = lengths(self.src, self.special.src_pad)
        row = int(of_src.argmin())
        of_tgt = int(lengths(self.tgt, self.special.tgt_pad)[row])
        return self.src[row : row + 1, : int(of_src[row])], self.tgt[row : row + 1, : max(2, of_tgt)][:, :-1]

    def room_after(self, length: int) -> int:
        """Return how many tokens can be appended to a source: up to the longest source, or a few beyond."""
        return self.src.shape[1] - length or NUM_PAD

    @torch.no_grad()
    def logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V) float under teacher forcing.

        Raises:
            ModelOutputError: the model does not return logits of this shape.
        """
        logits = self.differentiable_logits(src, tgt_in)
        torch.clear_autocast_cache()  # it holds weights without gradients now, which training would use
        return logits if logits.dtype == torch.float64 else logits.float()

    def differentiable_logits(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the differentiable logits (B, T, V) float, at the positions of the decoder input."""
        return self.call.logits(src, tgt_in)

    @contextmanager
    def exact(self) -> Iterator[str]:
        """Compute in float64 inside the block, else in float32; yields why logits cannot be compared, "" if they can.

        A precision serves if the model works in it and returns what it returns in its own.
        """
        given = self.logits(*self.few)
        with ExitStack() as stack:
            for dtype in (torch.float64, torch.float32, None):
                with ExitStack() as attempt:
                    attempt.enter_context(computing_in(dtype, self.model))
                    coarsest = self._coarsest(given)
                    if coarsest in ROUNDING:
                        stack.enter_context(attempt.pop_all())
                        break
            self.rounding = ROUNDING.get(coarsest, COARSE) if coarsest else COARSE
            yield "" if coarsest in ROUNDING else self._too_coarse(coarsest)

    def _too_coarse(self, dtype: torch.dtype | None) -> str:
        if dtype is None:
            return "without autocast the model raises an exception or returns other logits."
        name = f"16 bits ({str(dtype).removeprefix('torch.')}), which are too coarse"
        if self.model is None:
            return f"the model computes in {name}; pass the module as model=, whose weights can be converted."
        return f"the model cannot be run without {name}: a part of it converts to them, or fails in other precisions."

    def _coarsest(self, given: torch.Tensor) -> torch.dtype | None:
        """Return the coarsest type in the forward pass now; None if it fails or returns other logits than it did.

        Types of what depends on no weight, such as a table of positions, round nothing differently.
        """
        weights = list(self.model.parameters()) if self.model is not None else []
        frozen = [each for each in weights if each.is_floating_point() and not each.requires_grad]
        try:
            for each in frozen:
                each.requires_grad_()  # or what depends on it would not be known
            with torch.set_grad_enabled(bool(weights)), FunctionCalls(*self.few) as calls:
                logits = self.differentiable_logits(*self.few).detach()
        except Exception:  # noqa: BLE001 - the user's code may not work in this precision
            return None
        finally:
            for each in frozen:
                each.requires_grad_(False)
        coarsest = min(calls.dtypes, key=lambda each: torch.finfo(each).bits, default=logits.dtype)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        is_close = largest_change(given.to(logits.dtype), logits, self.is_real) < CLOSE
        return coarsest if is_close else None

    def attention_calls(self, src: torch.Tensor, tgt_in: torch.Tensor) -> list[AttentionCall]:
        """Run pairs through the model; return the calls of attention.

        They are those of the lab's modules or of ``nn.MultiheadAttention``; without one, the calls of softmax and of
        ``scaled_dot_product_attention`` whose weights have the shape of source and decoder input.
        """
        if isinstance(self.model, Seq2Seq):
            return record_lab_attention(self.model, src, tgt_in)[1]
        if tgt_in.shape[1] == src.shape[1]:  # tell the blocks apart by the lengths
            tgt_in = tgt_in[:, :-1] if tgt_in.shape[1] > 2 else torch.cat([tgt_in, tgt_in[:, -1:]], dim=1)
        if self.model is not None and (
            calls := record_torch_attention(
                self.model, lambda: self.logits(src, tgt_in), src_length=src.shape[1], tgt_length=tgt_in.shape[1]
            )
        ):
            return calls
        with FunctionCalls(src, tgt_in) as seen:
            logits = self.logits(src, tgt_in)
        return [] if logits.shape[-1] in (src.shape[1], tgt_in.shape[1]) else seen.attention

    def lacks_positions(self) -> bool | None:
        """Return None: embeddings of an unknown model cannot be read."""
        return None

    def cross_entropy(self, src: torch.Tensor, tgt_in: torch.Tensor, is_real: torch.Tensor) -> torch.Tensor:
        """Return the differentiable cross-entropy of the first pairs, where ``is_real`` (B, T) bool."""
        logits = self.differentiable_logits(src, tgt_in)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return F.cross_entropy(logits[is_real], self.tgt[: len(src), 1:][is_real])

    def training_loss(self, *, few: bool = False) -> tuple[torch.Tensor, str]:
        """Return the differentiable loss of the batch, and the beginning of sentences about it, "" for the user's loss.

        Args:
            few: whether of the first ``num_few`` pairs only.

        Raises:
            NotCheckableError: the loss is not a single number.
        """
        count = self.num_few if few else len(self.tgt)
        if self.loss is None:
            is_real = self.tgt[:count, 1:] != self.special.tgt_pad
            return self.cross_entropy(self.src[:count], self.tgt_in[:count], is_real), IN_PLACE
        with _no_updates():
            loss = self.loss(self.forward, *(self.turned(self.turned(each)[:count]) for each in self._given))
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise NotCheckableError(f"the loss returns {described(loss)}; it must return one number, as a tensor.")
        return loss.reshape(()), ""

    def call_loss(self, *, with_pad: bool = False, certain: torch.Tensor | None = None) -> ConstantLogits:
        """Call the loss with constant logits instead of the model's.

        From now on the model is called with the masks of that call; otherwise the checks would speak of masks that
        training does not have.

        Args:
            with_pad: append a column of PAD to the targets.
            certain: (B, T) int64, the token that is certain at each position; None if all are equally likely.

        Raises:
            NotCheckableError: there is no loss, or it does not call the whole model exactly once.
            TrainingStepError: it calls ``backward``, or updates parameters.
        """
        if self.loss is None:
            raise NotCheckableError("pass loss=, a function of forward, src and tgt.")
        *others, tgt = self._given
        if with_pad:
            tgt = self.turned(F.pad(self.turned(tgt), (0, 1), value=self.special.tgt_pad))
        user_loss = self.loss
        parameters = list(self.model.parameters()) if self.model is not None else []
        for each in parameters:
            each.grad = None  # so that a call of backward is seen
        with _no_updates():
            seen = ConstantLogits.call(
                self.forward,
                lambda forward: user_loss(forward, *others, tgt),
                certain=None if certain is None else self.turned(certain),
            )
        if any(each.grad is not None for each in (seen.logits, *parameters)):
            raise TrainingStepError
        if len(self._given) == 2:
            self.call, doubts = self.call.masked_as(seen.arguments, self.special.src_pad)
            self.mask_doubts |= doubts
        return seen

    def trace_loss(self, seen: ConstantLogits) -> LossTrace:
        """Return the effect of a call of the loss, read from its gradient.

        Raises:
            NotCheckableError: the loss is not a number computed from the logits.
        """
        src, tgt_in = self.call.ids_in(seen.arguments, len(self._given))
        gradient, loss, pad = seen.gradient(), seen.loss.item(), self.special.tgt_pad
        return LossTrace.of(
            loss, self.turned(gradient), pad, src=src, tgt_in=tgt_in, is_mixed=positions_are_mixed(gradient)
        )

    def turned(self, tensor: torch.Tensor) -> torch.Tensor:
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
        first = int(self.tgt[0, 0])
        if len(self.tgt) > 1 and bool((self.tgt[:, 0] == first).all()):
            warnings.warn(f"every target starts with {first}, not with bos={bos}, which is put before it", stacklevel=4)
        self.tgt = F.pad(self.tgt, (1, 0), value=bos)

    def _read_pad(self) -> None:
        """Take the id after every EOS for PAD of a side whose PAD does not occur; a warning says it."""
        for side, ids in (("src", self.src), ("tgt", self.tgt)):
            pad = getattr(self.special, f"{side}_pad")
            after = ids[((ids == self.special.eos).cumsum(dim=1) > 0) & (ids != self.special.eos)]
            if (ids == pad).any() or not after.numel() or not bool((after == after[0]).all()):
                continue
            found = int(after[0])
            if bool((ids[:, -1] == found).any()):
                warnings.warn(
                    f"every id after EOS in {side} is {found}, so {side}_pad={found}, not {pad}", stacklevel=4
                )
                self.special = replace(self.special, **{f"{side}_pad": found})


@contextmanager
def _no_updates() -> Iterator[None]:
    """Raise TrainingStepError where this thread calls an optimizer inside the block."""
    thread = threading.get_ident()

    def refuse(*_: object) -> None:
        if threading.get_ident() == thread:
            raise TrainingStepError

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def restored(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Restore weights, gradients and the optimizers' states and settings after the block."""
    groups = [(group, dict(group)) for each in optimizers for group in each.param_groups]
    owned = [each for group, _ in groups for each in group["params"]]
    tensors = list(dict.fromkeys([*model.parameters(), *model.buffers(), *owned]))
    weights = [each.detach().clone() for each in tensors]
    gradients = [each.grad for each in tensors]
    states = [(each, {key: _copied(of) for key, of in each.state.items()}) for each in optimizers]
    try:
        for each in tensors:
            each.grad = None
        yield
    finally:
        with torch.no_grad():
            for each, weight, gradient in zip(tensors, weights, gradients, strict=True):
                each.copy_(weight)
                each.grad = gradient
        for optimizer, state in states:
            optimizer.state.clear()
            optimizer.state.update(state)
        for group, before in groups:
            group.clear()
            group.update(before)


def _usable_by_backward(ids: torch.Tensor) -> torch.Tensor:
    """Return ids, or a copy of those made in inference mode, which no graph may keep."""
    return ids.clone() if isinstance(ids, torch.Tensor) and ids.is_inference() else ids


def _batch_first(tgt: torch.Tensor, bos: int) -> bool:
    """Return whether targets are (B, T), judged by where BOS is; a warning says it if they are not."""
    is_bos = tgt == bos
    if bool(is_bos[:, 0].all()) or not bool(is_bos[0].all()):
        return True
    warnings.warn(f"BOS ({bos}) fills the first row of tgt, so src and tgt are read as (S, B) and (T, B)", stacklevel=5)
    return False


def _copied(state: Any) -> Any:
    """Return a copy of an optimizer's state of one parameter."""
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    return state.clone() if isinstance(state, torch.Tensor) else state
