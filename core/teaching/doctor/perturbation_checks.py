"""Checks that perturb a model's input and compare the logits."""

import torch
import torch.nn.functional as F
from torch import nn

from core.models import AttentionMaps, forward_with_attention
from core.models.embeddings import Embedding
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.subject import Subject
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

CHANGED = 1e-3  # standard deviations of the logits; rounding changes them by a thousandth of that
NUM_PAD = 3  # tokens appended


def check_causal_leak(subject: Subject, maps: AttentionMaps) -> Finding:
    """Changing the last target token changes no earlier logit.

    Args:
        subject: to examine.
        maps: of ``subject.few``.
    """
    name = "causal leak"
    src, tgt_in = subject.few
    size = len(subject.state.task.tgt_vocab)
    other = tgt_in.clone()
    other[:, -1] = torch.where(tgt_in[:, -1] == size - 1, size - 2, size - 1)
    change = _largest_change(subject.logits(src, tgt_in)[:, :-1], subject.logits(src, other)[:, :-1])
    if change < CHANGED:
        return Finding(name, "green", "Changing a future target token changes no earlier logit.", change)
    sentence = f"Changing a future target token changes earlier logits, by {change:.2g} standard deviations"
    later = 0.0
    if maps.decoder is not None:
        later = maps.decoder[..., -tgt_in.shape[1] :].triu(1).sum(dim=-1).mean().item()
    if later > CHANGED:
        sentence += f": {later:.0%} of the decoder's self-attention is on later tokens, the causal mask is missing."
        return Finding(name, "red", sentence, change, "no-causal-mask")
    return Finding(name, "red", sentence + ", although no attention weight is on later tokens.", change)


def check_pad_influence(subject: Subject) -> Finding:
    """Appending PAD to a source changes no logit."""
    name = "PAD influence"
    src, tgt_in = subject.shortest()
    num_pad = min(NUM_PAD, subject.model.max_seq_len - src.shape[1])
    if num_pad < 1:
        return Finding(name, "green", "The shortest source has the maximum length, so no PAD can be appended.")
    padded = F.pad(src, (0, num_pad), value=PAD_ID)
    change = _largest_change(subject.logits(src, tgt_in), subject.logits(padded, tgt_in))
    if change < CHANGED:
        return Finding(name, "green", "Appending PAD to a source changes no logit.", change)
    sentence = f"Appending PAD to a source changes the logits, by {change:.2g} standard deviations"
    with torch.no_grad():
        maps = forward_with_attention(subject.model, padded, tgt_in)[1]
        final, padded_final = (subject.model.encode(each).final for each in (src, padded))
    weights = maps.over_source(padded.shape[1])
    mass = 0.0 if weights is None else weights[..., -num_pad:].sum(dim=-1).mean().item()
    if mass > CHANGED:
        sentence += f": PAD gets {mass:.0%} of the attention, the padding mask is missing."
        return Finding(name, "red", sentence, change, "pad-attended-to")
    if final is not None and padded_final is not None and _largest_change(final, padded_final) > CHANGED:
        sentence += ", although PAD gets no attention: the encoder's final state is the one after the PAD."
        return Finding(name, "red", sentence, change, "encoder-over-pad")
    return Finding(name, "red", sentence + ", although PAD gets no attention.", change)


def check_source_order(subject: Subject) -> Finding:
    """Swapping two source tokens changes the logits."""
    name = "source order"
    src, tgt_in = subject.few
    swaps = {row: swap for row in range(len(src)) if (swap := _two_positions(src[row])) is not None}
    if not swaps:
        return Finding(name, "green", "No source has two different tokens to swap.")
    swapped = src.clone()
    for row, (first, last) in swaps.items():
        swapped[row, [first, last]] = src[row, [last, first]]
    rows = list(swaps)
    change = _largest_change(subject.logits(src, tgt_in)[rows], subject.logits(swapped, tgt_in)[rows])
    if change >= CHANGED:
        sentence = f"Swapping two source tokens changes the logits, by {change:.2g} standard deviations."
        return Finding(name, "green", sentence, change)
    sentence = "Swapping two source tokens changes no logit"
    if _has_no_positions(subject.model):
        sentence += ", and a token has the same embedding at every position: the model has no positional information."
        return Finding(name, "red", sentence, change, "no-positions")
    sentence += ", although embeddings differ by position: the output does not depend on the order of the source."
    return Finding(name, "red", sentence, change)


@torch.no_grad()
def _has_no_positions(model: nn.Module) -> bool:
    """Return whether every embedding of a model maps a token to the same vector at two positions."""
    pairs = [
        module(torch.full((1, 2), EOS_ID, device=module.tokens.weight.device))[0]
        for module in model.modules()
        if isinstance(module, Embedding)
    ]
    return all(torch.equal(one, other) for one, other in pairs)


def _two_positions(row: torch.Tensor) -> tuple[int, int] | None:
    """Return the first position of a source (S,) and the last one with a different symbol."""
    positions = [at for at, token in enumerate(row.tolist()) if token not in (PAD_ID, BOS_ID, EOS_ID)]
    others = [at for at in positions if row[at] != row[positions[0]]]
    return (positions[0], others[-1]) if others else None


def _largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the largest absolute change, in standard deviations of ``before``."""
    if not before.numel():
        return 0.0
    return ((before - after).abs().max() / before.std().clamp(min=1e-12)).item()
