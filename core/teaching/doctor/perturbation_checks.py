"""Checks that perturb a model's input and compare the logits where targets are not PAD.

A change counts if it is larger than rounding, and than a tiny fraction of what replacing a token changes.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from core.config.counting import percent
from core.models.seq2seq import Block
from core.teaching.doctor.attention_spread import VISIBLE, Ahead, attention_ahead, attention_to_end, how_to_end
from core.teaching.doctor.black_box import BlackBox, NotCheckableError, how_far, largest_change
from core.teaching.doctor.finding import Finding, not_checked

NUM_PAD = 3  # tokens appended
NEARLY_ALL = 0.99  # of the attention
TRIES = 3  # other inputs that may show that a token is not masked
WEAK = 0.01  # of the attention: less is left where a mask is there but too weak, such as -8
AGAIN = ", because a softmax is applied to weights that are masked: they are then above 0 everywhere."
LATE = " in the softmax, and none after it: mask the scores before the softmax, whose sum has all tokens in it."
CONSTANT = "the logits of all positions are the same, as from an output layer that is initialized to zero."
BLOCKS: dict[Block, str] = {
    "encoder": "the encoder's self-attention",
    "decoder": "the decoder's attention",
    "cross": "the cross-attention",
}


def check_batch_rows(subject: BlackBox) -> Finding:
    """A pair has the same logits alone as in a batch."""
    name = "rows of a batch"
    (src, tgt_in), is_real = subject.few, subject.is_real
    if len(src) < 2:
        return not_checked(name, "the sample has only one pair.")
    together = subject.logits(src, tgt_in)
    rows = (slice(0, 1), slice(len(src) - 1, len(src)))
    change = max(largest_change(together[row], subject.logits(src[row], tgt_in[row]), is_real[row]) for row in rows)
    if _is_constant(together) and subject.rounding.explains(change):
        return not_checked(name, CONSTANT)
    if subject.rounding.explains(change):
        return Finding(name, "green", "A pair has the same logits alone as in a batch.", change)
    sentence = (
        f"The logits of a pair depend on the other pairs of its batch{how_far(change)}. Possible "
        "causes: view instead of transpose, batch_first, a softmax or a normalization over the wrong axis."
    )
    return Finding(name, "red", sentence, change)


def check_causal_leak(subject: BlackBox) -> Finding:
    """Replacing a target token changes no earlier logit, but its own."""
    name = "causal leak"
    (src, tgt_in), is_real = subject.few, subject.is_real
    positions = torch.arange(tgt_in.shape[1], device=tgt_in.device)
    last = (positions * is_real).amax(dim=1)
    if not last.any():
        return not_checked(name, "no decoder input has two tokens.")
    before = subject.logits(src, tgt_in)
    tokens = _target_tokens(subject, before.shape[-1])
    change = effect = pad_change = 0.0
    for at in (last // 2, last, torch.full_like(last, len(positions) - 1)):  # the end of most rows is PAD
        after = subject.logits(src, _replaced(tgt_in, at, tokens))
        is_earlier = positions < at[:, None]
        change = max(change, largest_change(before, after, is_real & is_earlier))
        effect = max(effect, largest_change(before, after, is_real & ~is_earlier))
        pad_change = max(pad_change, largest_change(before, after, ~is_real & is_earlier))
    if not subject.rounding.explains(change, effect):
        return _leak(subject, change)
    if _is_constant(before) and subject.rounding.explains(effect):
        return not_checked(name, CONSTANT)
    if subject.reads_target and subject.rounding.explains(effect):
        sentence = "Replacing a target token changes no logit, at no position: the decoder input is not read."
        return Finding(name, "red", sentence, effect)
    if not subject.rounding.explains(pad_change, effect):
        sentence = (
            f"Positions of PAD read later tokens: their logits change{how_far(pad_change)}. No "
            "logit that counts changes. Does the target's padding mask hide rows (queries) in place of columns (keys)?"
        )
        return Finding(name, "amber", sentence, pad_change)
    return Finding(name, "green", "Changing a future target token changes no earlier logit.", change)


def _leak(subject: BlackBox, change: float) -> Finding:
    """Return the finding of a leak, with what the weights of the decoder's self-attention show about it."""
    name = "causal leak"
    sentence = f"Changing a future target token changes earlier logits{how_far(change)}"
    ahead = attention_ahead(subject.attention_calls(*subject.few), subject.is_real)
    if ahead is None:
        sentence += ". Possible causes: no causal mask, view instead of transpose, a softmax over the wrong axis."
        return Finding(name, "red", sentence, change)
    if ahead.later <= VISIBLE:
        sentence += (
            ", although no attention weight is on later tokens. Possible causes: positions mixed elsewhere, as by view "
            "instead of transpose, or a softmax over the wrong axis."
        )
        return Finding(name, "red", sentence, change)
    return _attended_ahead(sentence, change, ahead)


def _attended_ahead(sentence: str, change: float, ahead: Ahead) -> Finding:
    """Return the finding of later tokens that are attended to; ``sentence`` is its beginning."""
    name = "causal leak"
    share = percent(ahead.later, 0) if ahead.later >= WEAK else f"{ahead.later:.2g}"
    sentence += f": {share} of the decoder's self-attention is on later tokens"
    if ahead.applied <= VISIBLE:
        return Finding(name, "red", sentence + LATE, change)
    if ahead.is_softmax_again:
        return Finding(name, "red", sentence + AGAIN, change)
    if ahead.is_uniform:
        sentence += ", of positions that attend to all tokens alike, as if a mask hid all tokens from them."
        return Finding(name, "red", sentence, change)
    if ahead.earlier <= VISIBLE:
        return Finding(name, "red", sentence + " and none on earlier ones: the causal mask is flipped.", change)
    if ahead.reach < ahead.farthest:
        return Finding(name, "red", f"{sentence}, at most {ahead.reach} ahead: the causal mask is shifted.", change)
    some, all_heads = ahead.heads
    if some < all_heads:
        sentence += f", all from {some} of {all_heads} heads. Check the causal mask of these heads."
        return Finding(name, "red", sentence, change)
    if ahead.later < WEAK:
        return Finding(name, "red", sentence + ", the causal mask is too weak.", change)
    if ahead.is_alike:
        sentence += (
            ", and all of a row get the same weight: the causal mask sets their scores to a number that is too high."
        )
        return Finding(name, "red", sentence, change)
    return Finding(name, "red", sentence + ", the causal mask is missing.", change, "no-causal-mask")


def check_pad_influence(subject: BlackBox) -> Finding:
    """Appending PAD to a source changes no logit."""
    name = "PAD influence"
    src, tgt_in = subject.shortest()
    num_pad = min(NUM_PAD, subject.room_after(src.shape[1]))
    if num_pad < 1:
        return not_checked(name, "the shortest source has the maximum length, so no PAD can be appended.")
    padded = F.pad(src, (0, num_pad), value=subject.special.src_pad)
    effect = _source_effect(subject, src, tgt_in)
    change = largest_change(subject.logits(src, tgt_in), subject.logits(padded, tgt_in))
    if subject.rounding.explains(change, effect):
        if subject.rounding.explains(effect):
            return not_checked(name, "replacing a source token changes no logit either.")
        return Finding(name, "green", "Appending PAD to a source changes no logit.", change)
    sentence = f"Appending PAD to a source changes the logits{how_far(change)}"
    calls = subject.attention_calls(padded, tgt_in)
    by_head, applied_by_head = (
        attention_to_end(calls, padded.shape[1], num_pad, applied=each) for each in (False, True)
    )
    masses = {block: mass.mean().item() for block, mass in by_head.items()}
    if max(masses.values(), default=0.0) > VISIBLE:
        applied = max(mass.mean().item() for mass in applied_by_head.values())
        how = how_to_end(calls, padded.shape[1], num_pad)
        return _pad_attended_to(sentence, change, masses, applied, by_head, how)
    if subject.final_state_changes(src, padded):
        sentence += ", although PAD gets no attention: the encoder's final state is the one after the PAD."
        return Finding(name, "red", sentence, change, "encoder-over-pad")
    if masses:
        sentence += (
            ", although PAD gets no attention weight. Possible causes: positions mixed before it, as by view instead "
            "of transpose, convolutions, or a recurrent encoder that reads PAD."
        )
        return Finding(name, "red", sentence, change)
    sentence += ". Possible causes: no padding mask, view instead of transpose, or a recurrent encoder that reads PAD."
    return Finding(name, "red", sentence, change)


def _pad_attended_to(
    sentence: str,
    change: float,
    masses: dict[Block, float],
    applied: float,
    by_head: dict[Block, torch.Tensor],
    how: tuple[bool, bool],
) -> Finding:
    """Return the finding of PAD that is attended to.

    Args:
        sentence: its beginning.
        change: of the logits.
        masses: the fraction of each block's attention that PAD gets.
        applied: likewise of what multiplies the values, in the block where it is largest.
        by_head: the fraction of each head, (H,), of the blocks.
        how: the result of ``how_to_end``.
    """
    name = "PAD influence"
    is_weak = max(masses.values()) < WEAK
    shares = {block: f"{mass:.2g}" if is_weak else percent(mass, 0) for block, mass in masses.items()}
    sentence += ": PAD gets " + " and ".join(f"{share} of {BLOCKS[block]}" for block, share in shares.items())
    if applied <= VISIBLE:
        return Finding(name, "red", sentence + LATE, change)
    is_alike, is_softmax_again = how
    if is_softmax_again:
        return Finding(name, "red", sentence + AGAIN, change)
    if is_weak:
        return Finding(name, "red", sentence + ", the padding mask is too weak, or missing.", change)
    reading = [block for block, mass in masses.items() if mass >= WEAK]
    some = {block: int((by_head[block] > VISIBLE).sum()) for block in reading}
    if any(number < len(by_head[block]) for block, number in some.items()):
        listed = " and ".join(f"{some[each]} of the {len(by_head[each])} heads of {BLOCKS[each]}" for each in reading)
        return Finding(name, "red", f"{sentence}, all from {listed}. Check the padding mask of these heads.", change)
    if all(masses[block] > NEARLY_ALL for block in reading):
        return Finding(name, "red", sentence + ", the padding mask is inverted.", change, "pad-attended-to")
    if is_alike:  # tokens of PAD that have no position are alike too
        sentence += ", and all of a row get the same weight: the padding mask is missing, or sets scores to a number "
        sentence += "that is too high."
        return Finding(name, "red", sentence, change, "pad-attended-to")
    state = ", the padding mask is missing."
    if len(reading) < len(masses):
        state = f": only {' and '.join(BLOCKS[block] for block in reading)} has no padding mask"
        state += " (memory_key_padding_mask in nn.Transformer)." if reading == ["cross"] else "."
    return Finding(name, "red", sentence + state, change, "pad-attended-to")


def check_target_pad(subject: BlackBox) -> Finding:
    """Appending PAD to a decoder input changes no logit before it."""
    name = "PAD after the target"
    (src, tgt_in), is_real = subject.few, subject.is_real
    padded = F.pad(tgt_in, (0, 1), value=subject.special.tgt_pad)
    before = subject.logits(src, tgt_in)
    effect = _source_effect(subject, src, tgt_in)
    change = largest_change(before, subject.logits(src, padded)[:, : tgt_in.shape[1]], is_real)
    if _is_constant(before) and subject.rounding.explains(max(change, effect)):
        return not_checked(name, CONSTANT)
    if subject.rounding.explains(change, effect):
        return Finding(name, "green", "Appending PAD to a decoder input changes no logit before it.", change)
    sentence = f"Appending PAD to a decoder input changes the logits before it{how_far(change)}."
    return Finding(name, "red", sentence, change)


def check_source_order(subject: BlackBox) -> Finding:
    """Swapping two source tokens changes the logits."""
    name = f"{subject.source} order"
    (src, tgt_in), is_real = subject.few, subject.is_real
    effect = _source_effect(subject, src, tgt_in, is_real)
    if subject.rounding.explains(effect):
        if _is_constant(subject.logits(src, tgt_in)):
            return not_checked(name, CONSTANT)
        sentence = f"Replacing a {subject.source} token changes no logit: the {subject.source} is not read."
        return Finding(name, "red", sentence, effect)
    swaps = {row: swap for row in range(len(src)) if (swap := _two_positions(subject, src[row])) is not None}
    if not swaps:
        return not_checked(name, f"no {subject.source} has two different tokens to swap.")
    swapped = src.clone()
    for row, (first, last) in swaps.items():
        swapped[row, [first, last]] = src[row, [last, first]]
    change = largest_change(subject.logits(src, tgt_in), subject.logits(swapped, tgt_in), is_real)
    if not subject.rounding.explains(change, effect):
        sentence = f"Swapping two {subject.source} tokens changes the logits{how_far(change)}."
        return Finding(name, "green", sentence, change)
    sentence = f"Swapping two {subject.source} tokens changes no logit, although replacing one does: "
    sentence += "the model does not use their "
    lacks_positions = subject.lacks_positions()
    if lacks_positions is None:
        sentence += f"order. Are positions added to the {subject.source}?"
        return Finding(name, "red", sentence, change, "no-positions")
    if lacks_positions:
        sentence += "order: a token has the same embedding at every position."
        return Finding(name, "red", sentence, change, "no-positions")
    return Finding(name, "red", sentence + "order, although its embeddings differ by position.", change)


def check_target_order(subject: BlackBox) -> Finding:
    """Swapping two target tokens changes the logits after them."""
    name = "target order"
    if not subject.reads_target:
        return not_checked(name, "the model reads no target.")
    (src, tgt_in), is_real = subject.few, subject.is_real
    swapped, replaced, is_after = tgt_in.clone(), tgt_in.clone(), torch.zeros_like(is_real)
    for row in range(len(tgt_in)):
        tokens = tgt_in[row].tolist()
        last = int(is_real[row].nonzero().max()) if is_real[row].any() else 0
        others = [at for at in range(2, last) if tokens[at] != tokens[1]]
        if others:
            swapped[row, [1, others[0]]] = tgt_in[row, [others[0], 1]]
            replaced[row, 1] = tgt_in[row, others[0]]
            is_after[row, others[0] + 1 : last + 1] = True
    if not is_after.any():
        return not_checked(name, "no decoder input has two different tokens and one after them.")
    before = subject.logits(src, tgt_in)
    effect, change = (largest_change(before, subject.logits(src, each), is_after) for each in (replaced, swapped))
    if subject.rounding.explains(effect):
        return not_checked(name, "replacing an earlier target token changes no logit.")
    if not subject.rounding.explains(change, effect):
        sentence = f"Swapping two earlier target tokens changes the logits{how_far(change)}."
        return Finding(name, "green", sentence, change)
    sentence = (
        "Swapping two earlier target tokens changes no logit, although replacing one does: the model does not use "
    )
    return Finding(name, "amber", sentence + "their order. Are positions added to the target?", change)


def check_hidden_tokens(subject: BlackBox) -> Finding:
    """Every token but PAD is attended to by some position, in each kind of attention."""
    name, special = "hidden tokens", subject.special
    read = subject.read_ids()
    keys = {block: ids != (special.tgt_pad if block == "decoder" else special.src_pad) for block, ids in read.items()}
    attended = _attended(subject, keys, *subject.few)
    if not attended:
        return not_checked(name, "the model has no attention that can be recorded.")
    for block, received in attended.items():
        ids, is_key = read[block], keys[block][:, : received.shape[1]]
        hidden = is_key & ~received
        if not hidden.any():
            continue
        fraction = (hidden.sum() / is_key.sum()).item()
        sentence = f"In {BLOCKS[block]} no position attends to {percent(fraction, 0)} of the tokens that are not PAD"
        found = ids[:, : received.shape[1]][hidden].unique().tolist()
        sentence += f", all of them with id {found[0]}" if len(found) == 1 else ""
        others = [_among_others(subject, block, hidden, by) for by in range(1, min(len(ids), TRIES + 1))]
        if any(bool((_attended(subject, keys, *each)[block] & hidden).any()) for each in others):
            sentence += ". Among other tokens some of them are: no fixed mask hides them, but perhaps sparse attention."
            return Finding(name, "amber", sentence, fraction)
        return Finding(name, "red", sentence + ": a mask hides them.", fraction)
    *first, last = (BLOCKS[block] for block in attended)
    seen = f"{', '.join(first)} and {last}" if first else last
    return Finding(name, "green", f"Every token but PAD is attended to, in {seen}.", 0.0)


def _attended(
    subject: BlackBox, keys: dict[Block, torch.Tensor], src: torch.Tensor, tgt_in: torch.Tensor
) -> dict[Block, torch.Tensor]:
    """Return by block which keys get attention from a token, (B, Tk) bool.

    Args:
        keys: (B, Tk) bool by block, which are tokens and not PAD.
        src, tgt_in: ids of these shapes, (B, S) and (B, T) int64.
    """
    queries = keys | {"cross": keys["decoder"]}
    attended: dict[Block, torch.Tensor] = {}
    for call in subject.attention_calls(src, tgt_in):
        block, (num_queries, num_keys) = call.block, call.weights.shape[-2:]
        if block not in keys or num_keys > keys[block].shape[1] or num_queries > queries[block].shape[1]:
            continue  # a decoder that reads the source has it before the target
        is_query = queries[block][:, None, :num_queries, None]
        received = (call.weights.nan_to_num(0.0) * is_query).amax(dim=(1, 2)) > 0
        attended[block] = attended.get(block, torch.zeros_like(received)) | received
    return attended


def _among_others(subject: BlackBox, block: Block, kept: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the few pairs with the tokens of other rows in place of all but PAD and the keys ``kept``, (B, Tk) bool.

    A mask hides a key by its position or its id, which remain; sparse attention, such as to the largest scores, drops
    it by what the other tokens are.
    """
    (src, tgt_in), special = subject.few, subject.special
    ids = torch.cat([src, tgt_in], dim=1)
    is_pad = torch.cat([src == special.src_pad, tgt_in == special.tgt_pad], dim=1)
    remains = is_pad | is_pad.roll(rows, 0)
    start = src.shape[1] if block == "decoder" and subject.read_ids()[block].shape[1] < ids.shape[1] else 0
    remains[:, start : start + kept.shape[1]] |= kept
    mixed = torch.where(remains, ids, ids.roll(rows, 0))
    return mixed[:, : src.shape[1]], mixed[:, src.shape[1] :]


CHECKS: dict[str, Callable[[BlackBox], Finding]] = {
    "rows of a batch": check_batch_rows,
    "causal leak": check_causal_leak,
    "PAD influence": check_pad_influence,
    "PAD after the target": check_target_pad,
    "source order": check_source_order,
    "target order": check_target_order,
    "hidden tokens": check_hidden_tokens,
}


def _is_constant(logits: torch.Tensor) -> bool:
    """Whether all positions of all pairs have exactly the same logits (B, T, V), which show nothing of what is read."""
    return torch.equal(logits, logits[:1, :1].expand_as(logits))


def _source_effect(
    subject: BlackBox, src: torch.Tensor, tgt_in: torch.Tensor, where: torch.Tensor | None = None
) -> float:
    """Return the largest change of the logits when the first or the last symbol of each source is replaced."""
    symbols = [token for token in subject.few[0].unique().tolist() if token not in subject.special]
    if len(symbols) < 2:
        raise NotCheckableError(f"each {subject.source} has fewer than two tokens besides PAD, BOS and EOS.")
    is_symbol = torch.isin(src, torch.tensor(symbols, device=src.device)).int()
    before = subject.logits(src, tgt_in)
    first, last = is_symbol.argmax(dim=1), src.shape[1] - 1 - is_symbol.flip(1).argmax(dim=1)
    changed = (subject.logits(_replaced(src, at, symbols), tgt_in) for at in (first, last))
    return max(largest_change(before, after, where) for after in changed)


def _target_tokens(subject: BlackBox, size: int) -> list[int]:
    """Return two tokens of the target vocabulary."""
    tokens = [token for token in reversed(range(size)) if token not in subject.special][:2]
    if len(tokens) < 2:
        raise NotCheckableError("the target vocabulary has fewer than two tokens besides PAD, BOS and EOS.")
    return tokens


def _replaced(ids: torch.Tensor, at: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Return ids (B, T) with another token, one of the first two of ``tokens``, at one position of each row, (B,)."""
    old = ids.gather(1, at[:, None])
    return ids.scatter(1, at[:, None], torch.where(old == tokens[0], tokens[1], tokens[0]).to(ids.dtype))


def _two_positions(subject: BlackBox, row: torch.Tensor) -> tuple[int, int] | None:
    """Return the first position of a source (S,) and the last one with a different symbol."""
    positions = [at for at, token in enumerate(row.tolist()) if token not in subject.special]
    others = [at for at in positions if row[at] != row[positions[0]]]
    return (positions[0], others[-1]) if others else None
