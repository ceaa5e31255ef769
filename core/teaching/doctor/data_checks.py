"""Checks of what a model is trained on: what it reads, what it is to produce, and which places count."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from core.tasks import Batch
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.subject import Subject
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def shift_of_targets(subject: Subject) -> Finding:
    """The decoder reads BOS and what comes before the token that it is to produce."""
    name = "shift of the targets"
    read, asked = subject.pairs.tgt_in, subject.pairs.tgt_out
    real = asked != PAD_ID
    same = (read == asked)[real].float().mean().item()
    if bool((read[:, 0] == BOS_ID).all()) and torch.equal(read[:, 1:], asked[:, :-1]):
        return Finding(name, "green", "The decoder reads what comes before the token that it is to produce.", same)
    bug = "targets-not-shifted" if same > 0.99 else None
    sentence = f"At {same:.0%} of the places the decoder reads the very token that it is to produce."
    return Finding(name, "red", sentence, same, bug)


def ends_of_targets(subject: Subject) -> Finding:
    """Answers end with EOS."""
    name = "ends of the targets"
    asked = subject.pairs.tgt_out
    ended = (asked == EOS_ID).any(dim=1).float().mean().item()
    if ended > 0.99:
        return Finding(name, "green", "Every answer that it trains on ends with EOS.", ended)
    sentence = f"{ended:.0%} of the answers that it trains on end with EOS: it does not learn to stop."
    return Finding(name, "red", sentence, ended, "no-eos-in-targets" if ended == 0 else None)


def places_that_count(subject: Subject) -> Finding:
    """PAD's places have no part in the loss: its gradient there is zero."""
    name = "PAD in the loss"
    pairs = _with_pad(subject)
    logits: list[torch.Tensor] = []
    handle = subject.model.output.register_forward_hook(lambda _, args, given: logits.append(given))
    try:
        loss = subject.state.loss_function(
            subject.model, pairs, subject.state.preset.training, teacher_forcing_ratio=1.0, generator=torch.Generator()
        )
    finally:
        handle.remove()
    gradient = torch.autograd.grad(loss, logits[0])[0].abs().sum(dim=-1)
    is_pad = pairs.tgt_out == PAD_ID
    if not is_pad.any():
        return Finding(name, "green", "Its batches have no PAD.")
    share = (gradient[is_pad].sum() / gradient.sum().clamp(min=1e-30)).item()
    if share == 0:
        return Finding(name, "green", "What is predicted where PAD stands does not count.", share)
    sentence = f"PAD counts in the loss: its places have {share:.0%} of the gradient."
    return Finding(name, "red", sentence, share, "pad-in-the-loss")


def _with_pad(subject: Subject) -> Batch:
    """Return a few pairs of which some have PAD behind the target, if there is room."""
    pairs = subject.pairs
    room = subject.model.max_seq_len - (pairs.tgt.shape[1] - 1)
    if (pairs.tgt_out == PAD_ID).any() or room < 1:
        return pairs[:16] if (pairs[:16].tgt_out == PAD_ID).any() else pairs
    return replace(pairs[:16], tgt=F.pad(pairs.tgt[:16], (0, 1), value=PAD_ID))
