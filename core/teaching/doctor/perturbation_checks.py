"""Checks that perturb a model's input and compare the logits."""

import torch
import torch.nn.functional as F

from core.teaching.doctor.black_box import BlackBox, largest_change
from core.teaching.doctor.finding import Finding, not_checked

NUM_PAD = 3  # tokens appended
NEARLY_ALL = 0.99  # of the attention


def check_batch_rows(subject: BlackBox) -> Finding:
    """A pair has the same logits alone as in a batch."""
    name = "rows of a batch"
    src, tgt_in = subject.few
    if len(src) < 2:
        return not_checked(name, "the sample has only one pair.")
    together, rows = subject.logits(src, tgt_in), (0, len(src) - 1)
    change = max(
        largest_change(together[row : row + 1], subject.logits(src[row : row + 1], tgt_in[row : row + 1]))
        for row in rows
    )
    if change < subject.tolerance:
        return Finding(name, "green", "A pair has the same logits alone as in a batch.", change)
    sentence = (
        f"The logits of a pair depend on the other pairs of its batch, by {change:.2g} standard deviations: batch and "
        "positions are mixed up, by view instead of transpose, batch_first or a softmax over the wrong axis."
    )
    return Finding(name, "red", sentence, change)


def check_causal_leak(subject: BlackBox) -> Finding:
    """Changing the last target token changes no earlier logit."""
    name = "causal leak"
    src, tgt_in = subject.few
    if tgt_in.shape[1] < 2:
        return not_checked(name, "no decoder input has two tokens.")
    before = subject.logits(src, tgt_in)
    others = [token for token in reversed(range(before.shape[-1])) if token not in subject.special][:2]
    if len(others) < 2:
        return not_checked(name, "the target vocabulary has fewer than two tokens besides PAD, BOS and EOS.")
    changed = tgt_in.clone()
    changed[:, -1] = torch.where(tgt_in[:, -1] == others[0], others[1], others[0])
    change = largest_change(before[:, :-1], subject.logits(src, changed)[:, :-1])
    if change < subject.tolerance:
        return Finding(name, "green", "Changing a future target token changes no earlier logit.", change)
    sentence = f"Changing a future target token changes earlier logits, by {change:.2g} standard deviations"
    later = subject.attention_to_later()
    if later is None:
        return Finding(name, "red", sentence + ": the decoder reads ahead.", change)
    if later > subject.tolerance:
        sentence += f": {later:.0%} of the decoder's self-attention is on later tokens, the causal mask is missing."
        return Finding(name, "red", sentence, change, "no-causal-mask")
    return Finding(name, "red", sentence + ", although no attention weight is on later tokens.", change)


def check_pad_influence(subject: BlackBox) -> Finding:
    """Appending PAD to a source changes no logit."""
    name = "PAD influence"
    src, tgt_in = subject.shortest()
    num_pad = min(NUM_PAD, subject.room_after(src.shape[1]))
    if num_pad < 1:
        return not_checked(name, "the shortest source has the maximum length, so no PAD can be appended.")
    padded = F.pad(src, (0, num_pad), value=subject.special.pad)
    change = largest_change(subject.logits(src, tgt_in), subject.logits(padded, tgt_in))
    if change < subject.tolerance:
        return Finding(name, "green", "Appending PAD to a source changes no logit.", change)
    sentence = f"Appending PAD to a source changes the logits, by {change:.2g} standard deviations"
    mass = subject.attention_to_end(padded, tgt_in, num_pad)
    if mass is not None and mass > subject.tolerance:
        state = "missing" if mass < NEARLY_ALL else "inverted"
        sentence += f": PAD gets {mass:.0%} of the attention, the padding mask is {state}."
        return Finding(name, "red", sentence, change, "pad-attended-to")
    if subject.final_state_changes(src, padded):
        sentence += ", although PAD gets no attention: the encoder's final state is the one after the PAD."
        return Finding(name, "red", sentence, change, "encoder-over-pad")
    if mass is None:
        sentence += ": the padding mask is missing, or a recurrent encoder reads PAD."
        return Finding(name, "red", sentence, change)
    return Finding(name, "red", sentence + ", although PAD gets no attention.", change)


def check_target_pad(subject: BlackBox) -> Finding:
    """Appending PAD to a decoder input changes no logit before it."""
    name = "PAD after the target"
    src, tgt_in = subject.few
    padded = F.pad(tgt_in, (0, 1), value=subject.special.pad)
    change = largest_change(subject.logits(src, tgt_in), subject.logits(src, padded)[:, : tgt_in.shape[1]])
    if change < subject.tolerance:
        return Finding(name, "green", "Appending PAD to a decoder input changes no logit before it.", change)
    sentence = f"Appending PAD to a decoder input changes the logits before it, by {change:.2g} standard deviations."
    return Finding(name, "red", sentence, change)


def check_source_order(subject: BlackBox) -> Finding:
    """Swapping two source tokens changes the logits."""
    name = "source order"
    src, tgt_in = subject.few
    swaps = {row: swap for row in range(len(src)) if (swap := _two_positions(subject, src[row])) is not None}
    if not swaps:
        return not_checked(name, "no source has two different tokens to swap.")
    swapped = src.clone()
    for row, (first, last) in swaps.items():
        swapped[row, [first, last]] = src[row, [last, first]]
    rows = list(swaps)
    before = subject.logits(src, tgt_in)
    change = largest_change(before[rows], subject.logits(swapped, tgt_in)[rows])
    if change >= subject.tolerance:
        sentence = f"Swapping two source tokens changes the logits, by {change:.2g} standard deviations."
        return Finding(name, "green", sentence, change)
    sentence = "Swapping two source tokens changes no logit"
    if largest_change(before, subject.logits(_other_tokens(subject, src), tgt_in)) < subject.tolerance:
        return Finding(name, "red", sentence + ", and neither do other tokens: the source is not read.", change)
    if subject.lacks_positions():
        sentence += ", and a token has the same embedding at every position: the model has no positional information."
        return Finding(name, "red", sentence, change, "no-positions")
    sentence += ", although embeddings differ by position: the output does not depend on the order of the source."
    return Finding(name, "red", sentence, change)


def _two_positions(subject: BlackBox, row: torch.Tensor) -> tuple[int, int] | None:
    """Return the first position of a source (S,) and the last one with a different symbol."""
    positions = [at for at, token in enumerate(row.tolist()) if token not in subject.special]
    others = [at for at in positions if row[at] != row[positions[0]]]
    return (positions[0], others[-1]) if others else None


def _other_tokens(subject: BlackBox, src: torch.Tensor) -> torch.Tensor:
    """Return sources (B, S) int64 with each symbol replaced by the next one that occurs in them."""
    tokens = [token for token in src.unique().tolist() if token not in subject.special]
    replaced = src.clone()
    for token, other in zip(tokens, tokens[1:] + tokens[:1], strict=True):
        replaced[src == token] = other
    return replaced
