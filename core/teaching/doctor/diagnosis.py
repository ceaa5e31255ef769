"""Diagnose any model from its logits and, if they are passed, its loss and optimizer."""

import inspect
import math
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from core.config.counting import counted
from core.interpret.any_module.attention_calls import AttentionCall
from core.interpret.any_module.calling import Forward, ModelOutputError, checked_ids, checked_number, described
from core.interpret.any_module.function_calls import FunctionCalls
from core.interpret.any_module.kept_states import examined
from core.models import Seq2Seq
from core.storage.errors import InputError
from core.storage.interrupts import interrupts_held
from core.teaching.doctor import attention_checks, learning_checks, path_checks, perturbation_checks
from core.teaching.doctor.any_model import IN_PLACE, AnyModel, Loss, restored
from core.teaching.doctor.black_box import NO_ID, ROUNDING, NotCheckableError, SpecialIds
from core.teaching.doctor.decoding_check import check_decoding
from core.teaching.doctor.finding import FORWARD, Examination, Finding, not_checked
from core.teaching.doctor.forward_check import NOT_FINITE, NOT_REPEATABLE, check_forward, of_no_row
from core.teaching.doctor.language_model import LanguageModel
from core.teaching.doctor.loss_checks import NO_PAD, SAME_ID, LossChecks

MAY_FILL_IN = " A model that fills in hidden tokens reads both sides: pass its loss=, and this is not checked."
NO_FORWARD = "the forward pass does not work on this batch."
NO_MODULE = "forward is no nn.Module; pass the module as model=."

Decode = Callable[[torch.Tensor], torch.Tensor]
Check = tuple[str, Callable[[], Finding]]  # its name and how it is made


def diagnose(
    forward: Forward,
    src: torch.Tensor | None,
    tgt: torch.Tensor,
    *,
    pad: int | None = None,
    bos: int | None = None,
    eos: int | None = None,
    loss: Loss | None = None,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    batch_first: bool | None = None,
    step: int = 0,
    src_pad: int | None = None,
    tgt_pad: int | None = None,
    decode: Decode | None = None,
) -> Examination:
    """Examine any sequence-to-sequence or language model on a batch of its training pairs, and report problems.

    Only ``forward`` is needed. A property that cannot be checked is a gray finding with the reason, never a green one.
    A model that raises an exception ends only the check that called it. Logits are compared in float64 and without
    autocast, if the model works so. Weights, attributes, gradients, modes, the optimizer's state and the random
    generators of PyTorch, Python and NumPy are unchanged afterwards.

    Args:
        forward: ``forward(src, tgt_in)`` returns the logits, (B, T, V) float; an ``nn.Module``, or a function that adds
            masks or extracts the logits from the model's result. A tuple that begins with the logits or a result with
            ``logits`` will do. A model of Hugging Face is called by the names of its arguments, with an attention
            mask as in the loss, or without a loss one that hides PAD. A language model is called as ``forward(ids)``.
        src: (B, S) int64, a batch as training uses it, padded on the right; None for a language model.
        tgt: (B, T) int64, BOS, the target, EOS, PAD; without BOS, it is prepended. The decoder input is ``tgt[:,
            :-1]``. Of a language model, the sequences as training uses them.
        pad, bos, eos: ids of the special tokens, the same in ``src`` and ``tgt``. A language model may lack some.
        loss: ``loss(forward, src, tgt)``, or ``loss(forward, tgt)`` of a language model, computes the training loss,
            from the batch to the tensor on which training calls ``backward``; it must call its first argument once, and
            neither ``backward`` nor an optimizer.
        model: the module with the parameters, if ``forward`` is a function.
        optimizer: as training uses it, to measure one update; a list, if training uses several.
        batch_first: False if ``src`` and ``tgt`` are (S, B) and (T, B), and logits (T, B, V); None finds out by where
            BOS is, and warns if time is first.
        step: updates made; 0 for an untrained model.
        src_pad, tgt_pad: ids of PAD, if sources or targets have another one than ``pad``.
        decode: greedy decoding as inference does it: takes sources as ``src`` and returns ids (B, T), or (T, B), with
            or without BOS; of a language model, takes prompts and returns what follows, with or without the prompt. It
            must produce what ``forward`` predicts for the tokens before.

    Raises:
        InputError: ``src`` and ``tgt`` are not two matrices of ids with the same number of pairs, or ids of special
            tokens are missing; a number is no whole number, or a function, ``model`` or ``optimizer`` is none; the
            model is sharded by FSDP; the loss makes a training step.
    """
    started = time.perf_counter()
    if tgt is None:
        raise InputError("tgt is None; of a language model, pass its ids as tgt and None as src")
    for side, each in {"src": src, "tgt": tgt}.items():
        if each is not None:
            checked_ids(side, each)
    named = {"pad": pad, "bos": bos, "eos": eos, "src_pad": src_pad, "tgt_pad": tgt_pad}
    ids = {name: None if each is None else checked_number(name, each) for name, each in named.items()}
    special = _special_ids(src is None, **ids)
    step = checked_number("step", step, 0)
    several: Sequence[Any] = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
    optimizers = [each for each in several if each is not None]
    _check_kinds(model, optimizers, {"loss": loss, "decode": decode})
    kind, given = (LanguageModel, (tgt,)) if src is None else (AnyModel, (src, tgt))
    # Ctrl+C waits for the check that runs. A notebook may have turned gradients off.
    with interrupts_held() as raise_if_interrupted, torch.inference_mode(False), torch.enable_grad():
        subject = kind(forward, given, special, model=model, loss=loss, batch_first=batch_first)
        # The checks run inside blocks of their generator, which must end before the model is restored: by Ctrl+C too.
        with examined(subject.model), closing(_Diagnosis(subject, optimizers, step, decode).checks()) as checks:
            bar = tqdm(checks, "checks", file=sys.stderr, disable=None, leave=False)
            findings = []
            for check in bar:
                findings.append(_made(*check))
                raise_if_interrupted()
    name = (
        type(subject.model).__name__ if subject.model is not None else getattr(forward, "__name__", "model").strip("<>")
    )
    return Examination(name, step, tuple(findings), time.perf_counter() - started)


def _special_ids(
    is_language_model: bool,
    pad: int | None,
    bos: int | None,
    eos: int | None,
    src_pad: int | None,
    tgt_pad: int | None,
) -> SpecialIds:
    found = {"src_pad": pad if src_pad is None else src_pad, "tgt_pad": pad if tgt_pad is None else tgt_pad}
    found |= {"bos": bos, "eos": eos}
    missing = [name for name, each in found.items() if each is None]
    if missing[:2] == ["src_pad", "tgt_pad"]:
        missing[:2] = ["pad"]
    if missing and not is_language_model:
        listed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        raise InputError(f"{listed} must be passed: ids of special tokens, which the checks need")
    return SpecialIds(**{name: NO_ID if each is None else each for name, each in found.items()})


def _check_kinds(model: object, optimizers: Iterable[object], functions: Mapping[str, object]) -> None:
    """Raise InputError for a model, optimizer or function that is none; what wraps an optimizer has its groups, too."""
    wrong = {name: (each, "a function") for name, each in functions.items() if not callable(each)}
    if not isinstance(model, nn.Module):
        wrong["model"] = model, "an nn.Module"
    for each in optimizers:
        if not hasattr(each, "param_groups"):
            wrong["optimizer"] = each, "an optimizer of PyTorch, or a list of them"
    for name, (each, kind) in wrong.items():
        if each is not None:
            raise InputError(f"{name} is {described(each)}; it must be {kind}")


def _made(name: str, check: Callable[[], Finding]) -> Finding:
    """Make a check; one that the model does not allow is gray."""
    try:
        return check()
    except (NotCheckableError, ModelOutputError) as error:
        return not_checked(name, str(error))
    except Exception as error:  # noqa: BLE001 - the model is the user's code and may raise anything
        message = " ".join(str(error).split())
        return not_checked(name, f"{type(error).__name__}: {message[:300]}")


class _Diagnosis:
    """The checks of one model, in order; those that need logits follow the check of the forward pass."""

    def __init__(
        self, subject: AnyModel, optimizers: Sequence[torch.optim.Optimizer], step: int, decode: Decode | None
    ) -> None:
        self.subject, self.optimizers, self.step, self.decode = subject, optimizers, step, decode
        self.is_language_model = isinstance(subject, LanguageModel)
        self.unusable = ""  # why logits cannot be compared
        self.leaks = False
        self.loss = LossChecks(subject)  # which also shows how training calls the model

    def checks(self) -> Generator[Check, None, None]:
        """Yield each check when those before it are made."""
        yield FORWARD, self._forward
        yield "logits", self._usable(self.loss.check_outputs)
        yield "loss sign", self.loss.check_sign
        if not self.is_language_model:
            yield "source in the loss", self.loss.check_source
        yield "target shift", self._usually(self._target_shift)
        yield "EOS in the targets", self.loss.check_eos
        yield "PAD in the loss", self.loss.check_pad
        yield "tokens in the loss", self.loss.check_tokens
        yield "greedy decoding", self._usable(self._decoding)
        if self.unusable:
            yield from self._behavior()
        else:
            with self.subject.exact() as self.unusable:
                yield from self._behavior()
        yield "gradients", self._gradients
        yield "initial loss", self._initial_loss
        yield "update size", self._update_size

    def _behavior(self) -> Iterable[Check]:
        own = {
            "rows of a batch": self._rows,
            "causal leak": self._usually(self._causal_leak),
            "PAD influence": self._pad_influence,
            "PAD after the target": self._usually(self._target_pad),
            "target order": self._target_order,
            "hidden tokens": self._hidden_tokens,
        }
        for name, check in perturbation_checks.CHECKS.items():
            if name == "PAD influence" and self.is_language_model:
                continue  # a sequence has no PAD in the middle
            shown = name.replace("source", self.subject.source)
            yield shown, self._usable(own.get(name, partial(check, self.subject)))
        yield from self._attention_checks()
        yield "derivatives", self._usable(self._derivatives)

    def _target_shift(self) -> Finding:
        """Without a loss, the shift is judged from what a trained model predicts."""
        if self.loss.trace is None and self.step and not self.unusable:
            return self.loss.check_copying()
        return self.loss.check_target_shift()

    # --- forward pass and logits -----------------------------------------------------------------------------------

    def _forward(self) -> Finding:
        """The model returns finite logits, the same for the same input."""
        self.unusable = NO_FORWARD
        try:
            finding, self.unusable = check_forward(self.subject)
        except IndexError as error:
            subject = self.subject
            sides = (
                {"tgt": subject.ids} if isinstance(subject, LanguageModel) else {"src": subject.src, "tgt": subject.tgt}
            )
            raise NotCheckableError(of_no_row(error, sides)) from error
        if self.unusable == NOT_REPEATABLE and self.subject.model is None:
            reason = finding.sentence.removeprefix("In evaluation mode ").rstrip(".")
            return not_checked(FORWARD, f"{reason}. Switch the model to evaluation mode, or pass it as model=.")
        return finding

    def _usable(self, check: Callable[[], Finding]) -> Callable[[], Finding]:
        """Return a check that is skipped if logits cannot be compared."""

        def guarded() -> Finding:
            if self.unusable:
                raise NotCheckableError(self.unusable)
            return check()

        return guarded

    def _usually(self, check: Callable[[], Finding]) -> Callable[[], Finding]:
        """Return a check that is skipped if the model is a masked language model, which is not causal."""

        def guarded() -> Finding:
            if self.loss.fills_in:
                raise NotCheckableError(self.loss.fills_in)
            return check()

        return guarded

    def _decoding(self) -> Finding:
        """Greedy decoding produces what the model predicts for the tokens before, a cache included."""
        if self.decode is None:
            return not_checked("greedy decoding", "pass decode=, a function from sources to ids.")
        return check_decoding(self.subject, self.decode)

    # --- perturbations ---------------------------------------------------------------------------------------------

    def _rows(self) -> Finding:
        finding = perturbation_checks.check_batch_rows(self.subject)
        if finding.light == "red":
            self.subject.num_few = 1  # the other checks must not find this again
        return finding

    def _causal_leak(self) -> Finding:
        finding = perturbation_checks.check_causal_leak(self.subject)
        self.leaks = finding.light == "red"
        if self.leaks and self.is_language_model and self.subject.loss is None:
            return replace(finding, sentence=finding.sentence + MAY_FILL_IN)
        return finding

    def _pad_influence(self) -> Finding:
        if self.subject.special.src_pad == self.subject.special.eos:
            return not_checked("PAD influence", SAME_ID)
        if "attention_mask" in self.subject.mask_doubts:
            return not_checked("PAD influence", self.subject.mask_doubts["attention_mask"])
        return perturbation_checks.check_pad_influence(self.subject)

    def _target_pad(self) -> Finding:
        if self.subject.special.tgt_pad == NO_ID:
            return not_checked("PAD after the target", NO_PAD)
        if self.leaks:
            return not_checked("PAD after the target", "later tokens change earlier logits, whatever they are.")
        return perturbation_checks.check_target_pad(self.subject)

    def _target_order(self) -> Finding:
        if self.leaks:
            return not_checked("target order", "later tokens change earlier logits.")
        return perturbation_checks.check_target_order(self.subject)

    def _hidden_tokens(self) -> Finding:
        if self.subject.mask_doubts:
            return not_checked("hidden tokens", " ".join(self.subject.mask_doubts.values()))
        return perturbation_checks.check_hidden_tokens(self.subject)

    # --- attention -------------------------------------------------------------------------------------------------

    def _attention_checks(self) -> Iterable[Check]:
        """Yield the checks of the attention modules found, the lab's or PyTorch's."""
        subject, model, is_trained = self.subject, self.subject.model, self.step > 0
        genuine: list[AttentionCall] = []

        def read() -> list[AttentionCall]:
            if not genuine:
                calls = subject.attention_calls(*subject.few)
                if not all(call.is_finite for call in calls):
                    raise NotCheckableError("attention weights are not finite: a row has no key that it may attend to.")
                genuine.extend(attention_checks.genuine_calls(calls))
            return genuine

        def normalized() -> list[AttentionCall]:
            calls = read()
            if attention_checks.check_row_sums(calls).light == "red":
                raise NotCheckableError("rows of attention weights do not sum to 1.")
            return calls

        def scaling() -> Finding:
            kind = getattr(getattr(model, "config", None), "model_type", "")
            if kind in attention_checks.UNDIVIDED:
                return not_checked("score scaling", f"published models of {kind} do not divide scores.")
            return attention_checks.check_score_scaling(normalized())

        attention: dict[str, Callable[[], Finding]] = {
            "attention rows": lambda: attention_checks.check_row_sums(read()),
            "score scaling": scaling,
            "attention queries": lambda: attention_checks.check_queries(normalized()),
            "head diversity": lambda: attention_checks.check_head_diversity(normalized()),
            "attention entropy": lambda: attention_checks.check_entropy(normalized(), is_trained=is_trained),
        }
        yield from ((name, self._usable(check)) for name, check in attention.items())
        if isinstance(model, Seq2Seq):
            yield "embedding scaling", lambda: attention_checks.check_embedding_scaling(model)
            yield "residual connections", lambda: learning_checks.check_residuals(model, *subject.few)
        else:
            reason = "it needs the hook points of the lab's own modules."
            yield "embedding scaling", partial(not_checked, "embedding scaling", reason)
            yield path_checks.RESIDUALS, self._usable(partial(path_checks.check_residual_paths, subject))
        yield path_checks.ACTIVATION, self._usable(partial(path_checks.check_activation, subject))

    # --- learning --------------------------------------------------------------------------------------------------

    def _gradients(self) -> Finding:
        name, model = "gradients", self.subject.model
        if self.unusable in (NOT_FINITE, NO_FORWARD):
            return not_checked(name, self.unusable)
        if failure := self.loss.failure():
            return Finding(name, "red", failure[0].upper() + failure[1:])
        if model is None:
            return not_checked(name, NO_MODULE)
        whose = "" if self.subject.loss is not None else IN_PLACE
        finding = learning_checks.check_gradients(model, lambda: self.subject.training_loss()[0])
        return replace(finding, sentence=whose + finding.sentence)

    def _derivatives(self) -> Finding:
        name, subject, model = "derivatives", self.subject, self.subject.model
        if model is None:
            return not_checked(name, NO_MODULE)
        if subject.rounding is not ROUNDING[torch.float64]:
            return not_checked(name, "the model does not compute in float64.")
        with FunctionCalls(*subject.few) as calls:
            loss, whose = subject.training_loss(few=True)
        if not math.isfinite(loss.item()):
            return not_checked(name, "the loss is not finite.")
        if not torch.equal(loss, subject.training_loss(few=True)[0]):
            return not_checked(name, "the loss of the same pairs differs from one call to the next.")
        if calls.dtypes == {torch.float64}:
            finding = learning_checks.check_derivatives(model, lambda: subject.training_loss(few=True)[0])
        else:
            whose = IN_PLACE
            finding = learning_checks.check_derivatives(
                model, lambda: subject.cross_entropy(*subject.few, subject.is_real)
            )
        return replace(finding, sentence=whose + finding.sentence)

    def _initial_loss(self) -> Finding:
        if self.step:
            return not_checked("initial loss", "the model is trained.")
        with torch.no_grad():
            loss, whose = self.subject.training_loss()
        if self.unusable == NOT_FINITE:
            return not_checked("initial loss", self.unusable)
        size = self.subject.logits(*self.subject.few).shape[-1]
        uniform, tokens = math.log(size), int((self.subject.tgt[:, 1:] != self.subject.special.tgt_pad).sum())
        if self.loss.trace is not None:
            uniform, tokens = self.loss.trace.uniform, int((self.loss.trace.gradient > 0).sum())
        finding = learning_checks.judge_initial_loss(loss.item(), uniform, size=size, tokens=tokens)
        return replace(finding, sentence=whose + finding.sentence)

    def _update_size(self) -> Finding:
        name, model, optimizers = "update size", self.subject.model, self.optimizers
        if model is None:
            return not_checked(name, NO_MODULE)
        if not optimizers:
            return not_checked(name, "pass optimizer=.")
        groups = [group for each in optimizers for group in each.param_groups]
        owned = {each for group in groups for each in group["params"]}
        forgotten = [each for each, it in model.named_parameters() if it.requires_grad and it not in owned]
        if forgotten:
            sentence = f"The optimizer lacks {counted(len(forgotten), 'parameter')}, the first is {forgotten[0]}."
            if len(optimizers) == 1:
                sentence += " If another optimizer has them, pass both in a list."
            return Finding(name, "red", sentence, float(len(forgotten)))
        rates = [float(group["lr"]) for group in groups if group.get("lr") is not None]
        if rates and not any(rates):
            return not_checked(name, "the optimizer's learning rate is 0 now.")
        arguments = [each for it in optimizers for each in inspect.signature(it.step).parameters.values()]
        if any(each.default is each.empty for each in arguments):
            return not_checked(name, "the optimizer's step needs a closure, which is not passed.")
        with restored(model, optimizers):
            trained = [each for each in model.parameters() if each.requires_grad]
            before = [each.detach().clone() for each in trained]
            loss, _ = self.subject.training_loss()
            loss.backward()
            for each in optimizers:
                each.step()
            fraction = learning_checks.update_fraction(before, trained)
        if fraction is not None and not math.isfinite(fraction) and not math.isfinite(loss.item()):
            return not_checked(name, "the loss is not finite.")
        rate = f"At the optimizer's present learning rate, {max(rates):.2g}," if rates else "At the rate that it sets,"
        return learning_checks.judge_update(fraction, rate)
