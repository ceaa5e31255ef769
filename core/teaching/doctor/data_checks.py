"""Checks of the training data: decoder inputs, targets, and the positions that count in the loss."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from core.models.hooks import hook_names, hooks
from core.tasks import Batch
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.subject import Subject
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

RARE = 0.25  # a fraction of targets that may end with an EOS that is data, and not the end


def check_target_shift(subject: Subject) -> Finding:
    """The decoder input is the target shifted right: BOS, then the tokens before the one to predict."""
    name = "target shift"
    tgt_in, tgt_out = subject.pairs.tgt_in, subject.pairs.tgt_out
    equal = (tgt_in == tgt_out)[tgt_out != PAD_ID].float().mean().item()
    if bool((tgt_in[:, 0] == BOS_ID).all()) and torch.equal(tgt_in[:, 1:], tgt_out[:, :-1]):
        return Finding(name, "green", "The decoder input is the target shifted right by one position.", equal)
    sentence = f"At {equal:.0%} of the positions the decoder reads the token that it has to predict."
    return Finding(name, "red", sentence, equal, "targets-not-shifted" if equal > 0.99 else None)


def check_eos_in_targets(subject: Subject) -> Finding:
    """Targets end with EOS."""
    name = "EOS in the targets"
    targets = subject.pairs.tgt_out
    last = (targets != PAD_ID).sum(dim=1, keepdim=True) - 1
    ended = (targets.gather(1, last) == EOS_ID).float().mean().item()
    if ended > 0.99:
        return Finding(name, "green", "Every target ends with EOS.", ended)
    sentence = f"{ended:.0%} of the targets end with EOS: the model does not learn to stop."
    return Finding(name, "red", sentence, ended, "no-eos-in-targets" if ended < RARE else None)


def check_pad_in_loss(subject: Subject) -> Finding:
    """PAD positions do not count in the loss: its gradient there is zero."""
    name = "PAD in the loss"
    pairs = _with_pad(subject)
    logits: list[torch.Tensor] = []
    points = [name for name in hook_names(subject.model) if name.endswith("hook_logits")]
    with hooks(dict.fromkeys(points, logits.append)):
        loss = subject.state.loss_function(
            subject.model, pairs, subject.state.preset.training, teacher_forcing_ratio=1.0, generator=torch.Generator()
        )
    gradient = torch.autograd.grad(loss, logits[0])[0].abs().sum(dim=-1)
    is_pad = pairs.tgt_out == PAD_ID
    if not is_pad.any():
        return Finding(name, "green", "The batches contain no PAD.")
    fraction = (gradient[is_pad].sum() / gradient.sum().clamp(min=1e-30)).item()
    if fraction == 0:
        return Finding(name, "green", "Predictions at PAD positions do not count in the loss.", fraction)
    sentence = f"PAD counts in the loss: its positions have {fraction:.0%} of the gradient."
    return Finding(name, "red", sentence, fraction, "pad-in-the-loss")


def _with_pad(subject: Subject) -> Batch:
    """Return a few pairs, some of them with PAD after the target if the model's maximum length allows it."""
    pairs = subject.pairs
    room = subject.model.max_seq_len - (pairs.tgt.shape[1] - 1)
    if (pairs.tgt_out == PAD_ID).any() or room < 1:
        return pairs[:16] if (pairs[:16].tgt_out == PAD_ID).any() else pairs
    return replace(pairs[:16], tgt=F.pad(pairs.tgt[:16], (0, 1), value=PAD_ID))
