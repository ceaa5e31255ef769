"""Checks of the loss of any model, from one call of it: what it reads, what it must predict, and what counts."""

import math
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import torch
import torch.nn.functional as F
from torch import nn

from core.config.counting import counted, percent
from core.interpret.any_module.calling import ModelOutputError, is_ids
from core.teaching.doctor import data_checks
from core.teaching.doctor.any_model import AnyModel, TrainingStepError
from core.teaching.doctor.black_box import NO_ID, NotCheckableError, SpecialIds
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.doctor.language_model import LanguageModel
from core.teaching.doctor.loss_trace import NO_GRADIENT, ConstantLogits, LossTrace

COPIES, PREDICTS = 0.9, 0.5  # fractions of tokens; a model that copies its input predicts few correctly
HIDDEN = 0.5  # fraction of the tokens to fill in that are not left as they are; BERT's is 0.9
NO_LABELS = "the gradient of the loss does not show which token each position must predict."
NO_PAD = "pad= was not passed."
FILLS_IN = "the loss hides tokens and predicts them, as of a masked language model, which reads both sides."
SAME_ID = "PAD and EOS are the same id."


class LossChecks:
    """The checks of one model's loss, which is called when they are created.

    Attributes:
        trace: the effect of the loss; None if it cannot be read, and ``no_trace`` says why.
        hidden: the share of the tokens that count in the loss that it hides from the model; 0 if it hides none.
        fills_in: why the model is a masked language model, as a sentence; "" if nothing shows that it is one.

    Raises:
        TrainingStepError: the loss makes a training step.
    """

    def __init__(self, subject: AnyModel) -> None:
        self.subject = subject
        self.trace: LossTrace | None = None
        self.no_trace = ""
        self.hidden = 0.0
        try:
            seen = subject.call_loss()
            if isinstance(subject, LanguageModel):
                self.hidden = _hidden_by_labels(subject, seen)
            self.trace = trace = subject.trace_loss(seen)
            if isinstance(subject, LanguageModel) and trace.tgt_in is not None and trace.labels is not None:
                given = (trace.tgt_in, trace.labels, trace.gradient > 0, subject.ids)
                self.hidden = data_checks.hidden_share(*given)
        except (NotCheckableError, ModelOutputError) as error:
            self.no_trace = str(error)
        except TrainingStepError:
            raise
        except Exception as error:  # noqa: BLE001 - the loss is the user's code and may raise anything
            self.no_trace = _raised(error)
        self.fills_in = FILLS_IN if self.hidden else ""
        if self.trace is None and not self.hidden and (kind := _masked_kind(subject.model)):
            self.fills_in = f"{kind} is a masked language model, which reads both sides."

    def failure(self) -> str:
        """Return why training cannot use the loss, as the end of a sentence; "" if it can, or if no loss was passed."""
        if self.no_trace == NO_GRADIENT:
            return NO_GRADIENT
        if self.subject.loss is None or self.trace is not None:
            return ""
        try:
            self.subject.training_loss()  # with the model's own logits
        except NotCheckableError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - the loss is the user's code and may raise anything
            return _raised(error)
        return ""

    def _traced(self) -> LossTrace:
        if self.trace is None:
            raise NotCheckableError(self.no_trace)
        return self.trace

    def _labels(self, trace: LossTrace | None = None) -> torch.Tensor:
        """Return the labels of a call of the loss, (B, T) int64."""
        labels = (trace or self._traced()).labels
        if labels is None:
            raise NotCheckableError(NO_LABELS)
        return labels

    def check_outputs(self) -> Finding:
        """The model returns the kind of output that its loss expects: logits, or log-probabilities."""
        name = "logits"
        logits = self.subject.logits(*self.subject.few)
        sums = logits.sum(dim=-1)
        if bool((logits >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
            sentence = "The model returns probabilities"
            if self.trace is None:
                return Finding(name, "amber", f"{sentence}; nn.CrossEntropyLoss needs the logits before the softmax.")
            if self.trace.takes_logits:
                sentence += ", and the loss applies a softmax again: gradients almost vanish. Return the logits."
                return Finding(name, "red", sentence)
            return Finding(name, "green", f"{sentence}, as its loss expects.")
        if self.trace is None:
            return not_checked(name, self.no_trace)
        if self.trace.is_mixed:
            sentence = (
                "The loss compares the logits of several positions as if they were those of one: it calls view or "
                "reshape where it needs transpose."
            )
            return Finding(name, "red", sentence)
        is_log = torch.allclose(logits.logsumexp(dim=-1), torch.zeros_like(sums), atol=1e-3)
        if not self.trace.takes_logits and not is_log:
            return Finding(name, "red", "The model returns logits, but the loss expects probabilities or their logs.")
        if self.trace.takes_logits and (wrong := self._squashes(self.trace, logits.shape[-1])):
            return Finding(name, "red", wrong)
        kind = "log-probabilities" if is_log else "logits"
        return Finding(name, "green", f"The model returns {kind}, as its loss expects.")

    def _squashes(self, trace: LossTrace, size: int) -> str:
        """Return what the loss does to logits before it compares them with the labels, as a sentence; "" if nothing.

        Certain predictions show it. Whether right or wrong, they change cross-entropy of probabilities by less than 1
        nat; that of logits has no bound for wrong ones, nor have its variants, such as label smoothing.

        Args:
            size: of the vocabulary.
        """
        if trace.labels is None:
            return ""
        labels = trace.labels.clamp(0, size - 1)  # where none counts, any will do
        right, wrong = (self.subject.call_loss(certain=each).loss.item() for each in (labels, (labels + 1) % size))
        if wrong == 0 and trace.uniform < 0 and math.isclose(right, size * trace.uniform, rel_tol=1e-3):
            return (
                "The loss is minus the probability of the label, not minus its logarithm: nn.NLLLoss needs log_softmax "
                "in place of softmax."
            )
        if max(abs(right - trace.uniform), abs(wrong - trace.uniform)) < trace.uniform / math.log(size):
            return (
                f"The loss is {right:.2f} if the model is certain of the right tokens, and {wrong:.2f} if of wrong "
                "ones: it applies a softmax or sigmoid before its own softmax, so gradients almost vanish. Pass logits."
            )
        return ""

    def check_target_shift(self) -> Finding:
        """The decoder input is the target shifted right."""
        name, subject = "target shift", self.subject
        trace = self._traced()
        if trace.tgt_in is None:
            return not_checked(name, "the call of the model in the loss does not show the decoder input.")
        special = subject.special
        if isinstance(subject, LanguageModel):
            special = replace(special, bos=NO_ID)  # sequences may be cut out of a longer text
        return data_checks.check_target_shift(trace.tgt_in, self._labels(), special)

    def check_copying(self) -> Finding:
        """A trained model predicts the next token, not the token that it has just read."""
        name, subject = "target shift", self.subject
        tgt_in, tgt_out = subject.tgt_in, subject.tgt[:, 1:]
        is_token = tgt_out != subject.special.tgt_pad
        predicted = subject.logits(subject.src, tgt_in).argmax(dim=-1)
        copied, correct = ((predicted == each)[is_token].float().mean().item() for each in (tgt_in, tgt_out))
        if copied > COPIES and correct < PREDICTS:
            sentence = f"At {percent(copied, 0)} of the positions the model predicts the token that it has just read."
            return Finding(name, "red", sentence, copied, "targets-not-shifted")
        if correct > PREDICTS:
            return Finding(name, "green", f"The model predicts {percent(correct, 0)} of the next tokens.", correct)
        return not_checked(name, self.no_trace)

    def check_eos(self) -> Finding:
        """Targets end with EOS."""
        name, subject, special = "EOS in the targets", self.subject, self.subject.special
        if special.eos == NO_ID:
            return not_checked(name, "eos= was not passed.")
        if special.tgt_pad == special.eos:
            return not_checked(name, SAME_ID)
        if not isinstance(subject, LanguageModel):
            targets = subject.tgt[:, 1:] if self.trace is None else self._labels()
            return data_checks.check_eos_in_targets(targets, special)
        ended = subject.targets[(subject.targets == special.tgt_pad).any(dim=1)]
        if not len(ended):
            return not_checked(name, "no sequence has PAD after it, so each may be cut out of a longer text.")
        return data_checks.check_eos_in_targets(ended, special)

    def check_pad(self) -> Finding:
        """PAD does not count in the loss."""
        name, special = "PAD in the loss", self.subject.special
        trace = self._traced()
        if special.tgt_pad == NO_ID:
            return not_checked(name, NO_PAD)
        if special.tgt_pad == special.eos:
            return not_checked(name, SAME_ID)
        if not (self.subject.tgt == special.tgt_pad).any():
            trace = self.subject.trace_loss(self.subject.call_loss(with_pad=True))
        return data_checks.check_pad_in_loss(trace.gradient, self._labels(trace) == special.tgt_pad)

    def check_sign(self) -> Finding:
        """The loss falls where a label becomes more likely."""
        name, trace = "loss sign", self._traced()
        self._labels(trace)
        if trace.rises:
            return Finding(name, "red", "The loss rises when a label becomes more likely: its sign is wrong.")
        return Finding(name, "green", "The loss falls when a label becomes more likely.")

    def check_source(self) -> Finding:
        """In the loss the model reads the sources."""
        name, src = "source in the loss", self._traced().src
        if src is None or len(src) != len(self.subject.src):
            return not_checked(name, "the call of the model in the loss does not show all sources.")
        length = min(src.shape[1], self.subject.src.shape[1])  # PAD may have been cut off
        if torch.equal(src[:, :length], self.subject.src[:, :length]):
            return Finding(name, "green", "In the loss the model reads the sources.")
        return Finding(name, "red", "In the loss the first ids that the model reads are not those of src.")

    def check_tokens(self) -> Finding:
        """Every token of the targets counts in the loss."""
        name, special = "tokens in the loss", self.subject.special
        if self.hidden > HIDDEN:
            return not_checked(name, FILLS_IN)
        if self.hidden:
            sentence = (
                f"The loss hides tokens and predicts them, but {percent(1 - self.hidden, 0)} of the tokens that count "
                "in it are not hidden: the model reads the token that it has to predict, and learns to copy."
            )
            return Finding(name, "amber", sentence, self.hidden)
        trace = self._traced()
        if trace.is_mixed:
            return not_checked(name, NO_LABELS)
        targets, gradient = self.subject.targets, trace.gradient
        if gradient.shape[1] == targets.shape[1] + 1 and not gradient[:, -1].any():
            gradient = gradient[:, :-1]  # the model has read the last token too, which nothing follows
        if gradient.shape != targets.shape:
            return not_checked(name, "the logits of the loss have another length than the decoder input.")
        is_left_out = (targets != special.tgt_pad) & (gradient == 0)
        if isinstance(self.subject, LanguageModel) and (finding := self._left_out_on_purpose(gradient == 0)):
            return finding
        if is_left_out.any() and trace.labels is not None:
            labels, counts = trace.labels[:, : targets.shape[1]], gradient > 0
            if not torch.equal(labels[counts], targets[counts]):
                return not_checked(name, "the loss compares predictions with other tokens than the next ones.")
        left_out = targets[gradient == 0].unique().tolist()
        if special.tgt_pad == NO_ID and len(left_out) == 1:
            return not_checked(name, f"no token with id {left_out[0]} counts; pass pad={left_out[0]} if it is PAD.")
        return data_checks.check_tokens_in_loss(gradient, targets, special)

    def _left_out_on_purpose(self, is_out: torch.Tensor) -> Finding | None:
        """Return the finding of a language model whose loss leaves out prompts, turns or what begins a document.

        Args:
            is_out: (B, T) bool, where the loss does not count.
        """
        name, special, targets = "tokens in the loss", self.subject.special, self.subject.targets
        prompts, turns = _prompts_and_turns(is_out, targets, special)
        if prompts:
            shortest, longest = min(prompts), max(prompts)
            tokens = counted(longest, "token") if shortest == longest else f"{shortest} to {counted(longest, 'token')}"
            sentence = f"Every token of the targets counts in the loss but the first {tokens} of each, as of a prompt"
            if not turns:
                return Finding(name, "green", f"{sentence}.", 0.0)
            sentence += f", and {counted(len(turns), 'later turn')}, as of a chat. Check that this is intended."
            return Finding(name, "amber", sentence, 0.0)
        left_out = is_out & (targets != special.tgt_pad)
        follows_eos = F.pad(targets[:, :-1] == special.eos, (1, 0))
        if special.eos == NO_ID or not left_out.any() or not follows_eos[left_out].all():
            return None
        sentence = (
            "Every token of the targets counts in the loss but those after EOS, as of documents in one sequence, none "
            "of which predicts the next. Check that this is intended."
        )
        return Finding(name, "amber", sentence, 0.0)


def _raised(error: Exception) -> str:
    return f"the loss raises {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _prompts_and_turns(
    left_out: torch.Tensor, targets: torch.Tensor, special: SpecialIds
) -> tuple[list[int], list[list[int]]]:
    """Return how many tokens at the beginning of each row do not count in the loss, and the turns after them.

    A turn is ids of two tokens or more that do not count, before one that does, as what others say in a chat. Without a
    prompt in every row, or if anything else is left out, both are empty.

    Args:
        left_out: (B, T) bool, where the loss does not count.
        targets: (B, T) int64, the tokens to predict.
        special: ids of PAD, which is no token.
    """
    prompts: list[int] = []
    turns: list[list[int]] = []
    for row, is_out in zip(targets, left_out, strict=True):
        is_token = row != special.tgt_pad
        pairs = zip(is_out[is_token].tolist(), row[is_token].tolist(), strict=True)
        spans = [(is_left_out, [id_ for _, id_ in span]) for is_left_out, span in groupby(pairs, key=itemgetter(0))]
        if not spans or not spans[0][0] or spans[-1][0]:
            return [], []
        prompts.append(len(spans[0][1]))
        turns += [ids for is_left_out, ids in spans[1:] if is_left_out]
    are_turns = all(len(ids) > 1 for ids in turns) and len({id_ for ids in turns for id_ in ids}) != 1
    return (prompts, turns) if are_turns else ([], [])


def _hidden_by_labels(subject: LanguageModel, seen: ConstantLogits) -> float:
    """Return the share of hidden tokens where the loss passes the labels to the model, as to those of Hugging Face.

    The call does not show whether the model shifts them, so labels of tokens that are not hidden show nothing.
    """
    labels, (_, read) = seen.arguments.get("labels"), subject.call.ids_in(seen.arguments, 1)
    if read is None or not is_ids(labels):
        return 0.0
    labels = subject.turned(labels)
    share = data_checks.hidden_share(read, labels, labels >= 0, subject.ids)
    return share if share > HIDDEN else 0.0


def _masked_kind(model: nn.Module | None) -> str:
    """Return the class of a masked language model of Hugging Face; "" if the model is or contains none."""
    for module in model.modules() if model is not None else ():
        config, kind = getattr(module, "config", None), type(module).__name__
        if kind.endswith("ForMaskedLM") and not getattr(config, "is_decoder", False):
            return kind
    return ""
