"""Checks of the training data: decoder inputs, targets, and the positions that count in the loss."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from core.config.counting import percent
from core.models.hooks import hook_names, hooks
from core.tasks import Batch
from core.teaching.doctor.black_box import NO_ID, SpecialIds, lengths
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.doctor.subject import Subject
from core.text.vocab import PAD_ID

REPLACED = 0.5  # fraction of the tokens that one id replaces in the decoder input; more is no word dropout
RARE = 0.25  # fraction of targets that may end with an EOS that is data and not the end


def check_target_shift(tgt_in: torch.Tensor, tgt_out: torch.Tensor, special: SpecialIds) -> Finding:
    """The decoder input is the target shifted right: BOS, then the tokens before the one to predict.

    Args:
        tgt_in: (B, T) int64, the decoder input.
        tgt_out: (B, T) int64, the tokens to predict; PAD at positions that do not count.
        special: ids of PAD, BOS and EOS.
    """
    name = "target shift"
    is_token = tgt_out != special.tgt_pad
    equal = (tgt_in == tgt_out)[is_token].float().mean().item()
    before, is_compared = tgt_out[:, :-1], is_token[:, :-1] & (tgt_in[:, 1:] != special.tgt_pad)
    if not is_compared.any():
        return not_checked(name, "no target has two tokens.")
    differs = is_compared & (tgt_in[:, 1:] != before)
    share, others = (differs.sum() / is_compared.sum()).item(), tgt_in[:, 1:][differs].unique().tolist()
    if len(others) > 1 or share > REPLACED:
        sentence = f"At {percent(equal, 0)} of the positions the decoder reads the token that it has to predict."
        if equal <= RARE:
            sentence = f"The decoder input is not the target shifted right by one position. {sentence}"
        return Finding(name, "red", sentence, equal, "targets-not-shifted" if equal > 0.99 else None)
    first = (tgt_in != special.tgt_pad).int().argmax(dim=1, keepdim=True)  # PAD may be on the left
    begins = torch.cat([tgt_in[:, :1], tgt_in.gather(1, first)], dim=1) == special.bos  # which may be PAD itself
    without = (~begins.any(dim=1)).float().mean().item()
    if without and special.bos != NO_ID:
        return Finding(name, "red", f"{percent(without, 0)} of the decoder inputs do not begin with BOS.", without)
    if others:
        sentence = (
            "The decoder input is the target shifted right by one position, but for the id "
            f"{others[0]}, which replaces {percent(share, 0)} of the tokens, as word dropout does. "
            "Check that this is intended."
        )
        return Finding(name, "amber", sentence, share)
    return Finding(name, "green", "The decoder input is the target shifted right by one position.", equal)


def hidden_share(read: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor, ids: torch.Tensor) -> float:
    """Return the share of hidden tokens among those that count, where a model fills in sequences with hidden tokens.

    A masked language model does. 0 if a label is not the token of its position, or no token is hidden.

    Args:
        read: (B, T) int64, what the model reads.
        labels: (B, T) int64, the token that each position must predict.
        counts: (B, T) bool, where the loss counts.
        ids: (B, T) int64, the sequences.
    """
    if not read.shape == labels.shape == ids.shape or not torch.equal(labels[counts], ids[counts]):
        return 0.0
    hidden = read != ids
    return hidden[counts].float().mean().item() if hidden.any() and not (hidden & ~counts).any() else 0.0


def check_eos_in_targets(targets: torch.Tensor, special: SpecialIds) -> Finding:
    """Targets, (B, T) int64, end with EOS."""
    name = "EOS in the targets"
    last = (lengths(targets, special.tgt_pad) - 1).clamp(min=0)
    ended = (targets.gather(1, last[:, None]) == special.eos).float().mean().item()
    if ended > 0.99:
        return Finding(name, "green", "Every target ends with EOS.", ended)
    sentence = f"{percent(ended, 0)} of the targets end with EOS: the model does not learn to stop."
    return Finding(name, "red", sentence, ended, "no-eos-in-targets" if ended < RARE else None)


def check_pad_in_loss(gradient: torch.Tensor, is_pad: torch.Tensor) -> Finding:
    """PAD positions do not count in the loss: its gradient there is zero.

    Args:
        gradient: (B, T) float, sizes of the gradient of the loss with respect to the logits.
        is_pad: (B, T) bool, True where the target is PAD.
    """
    name = "PAD in the loss"
    if not is_pad.any():
        return not_checked(name, "the batches contain no PAD.")
    fraction = (gradient[is_pad].sum() / gradient.sum().clamp(min=1e-30)).item()
    if fraction == 0:
        return Finding(name, "green", "Predictions at PAD positions do not count in the loss.", fraction)
    sentence = f"PAD counts in the loss: its positions have {percent(fraction, 0)} of the gradient."
    return Finding(name, "red", sentence, fraction, "pad-in-the-loss")


def check_tokens_in_loss(gradient: torch.Tensor, tgt_out: torch.Tensor, special: SpecialIds) -> Finding:
    """Every token of the targets counts in the loss.

    Args:
        gradient: (B, T) float, sizes of the gradient of the loss with respect to the logits.
        tgt_out: (B, T) int64, the tokens to predict.
        special: ids of PAD, BOS and EOS.
    """
    name = "tokens in the loss"
    is_token = tgt_out != special.tgt_pad
    left_out = is_token & (gradient == 0)
    fraction = (left_out.sum() / is_token.sum().clamp(min=1)).item()
    if not left_out.any():
        return Finding(name, "green", "Every token of the targets counts in the loss.", fraction)
    sentence = f"{percent(fraction, 0)} of the tokens of the targets do not count in the loss"
    ids = tgt_out[left_out].unique().tolist()
    if len(ids) == 1:
        sentence += f", all of them with id {ids[0]}" + (" (EOS)" if ids[0] == special.eos else "")
    return Finding(name, "red", sentence + ".", fraction)


def loss_gradient(subject: Subject) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the size of the gradient of a run's loss at each position, and where the target is PAD, both (B, T)."""
    pairs = _with_pad(subject)
    logits: list[torch.Tensor] = []
    points = [name for name in hook_names(subject.model) if name.endswith("hook_logits")]
    with hooks(dict.fromkeys(points, logits.append)):
        loss = subject.state.loss_function(
            subject.model, pairs, subject.state.preset.training, teacher_forcing_ratio=1.0, generator=torch.Generator()
        )
    return torch.autograd.grad(loss, logits[0])[0].abs().sum(dim=-1), pairs.tgt_out == PAD_ID


def _with_pad(subject: Subject) -> Batch:
    """Return a few pairs, some of them with PAD after the target if the model's maximum length allows it."""
    pairs = subject.pairs
    room = subject.model.max_seq_len - (pairs.tgt.shape[1] - 1)
    if (pairs.tgt_out == PAD_ID).any() or room < 1:
        return pairs[:16] if (pairs[:16].tgt_out == PAD_ID).any() else pairs
    return replace(pairs[:16], tgt=F.pad(pairs.tgt[:16], (0, 1), value=PAD_ID))
