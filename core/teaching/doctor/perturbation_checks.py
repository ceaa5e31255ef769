"""Checks that change what a model reads, and see what moves."""

import torch
import torch.nn.functional as F
from torch import nn

from core.models import forward_with_attention
from core.models.embeddings import Embedding
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.subject import Subject
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID

MOVED = 1e-3  # of the logits' standard deviation; rounding moves them by a thousandth of it
PAD_ADDED = 3


def causal_leak(subject: Subject) -> Finding:
    """Change the last target token: earlier logits must not move."""
    src, tgt_in = subject.few
    size = len(subject.state.task.tgt_vocab)
    other = tgt_in.clone()
    other[:, -1] = torch.where(tgt_in[:, -1] == size - 1, size - 2, size - 1)
    moved = _moved(subject.logits(src, tgt_in)[:, :-1], subject.logits(src, other)[:, :-1])
    if moved < MOVED:
        return Finding("causal leak", "green", "Changing a future target token moves no earlier logit.", moved)
    maps, _ = subject.watched()
    ahead = 0.0 if maps.decoder is None else maps.decoder[..., -tgt_in.shape[1] :].triu(1).sum(dim=-1).mean().item()
    sentence = (
        f"Changing a future target token moves earlier logits, by {moved:.2g} of their spread: it sees the future"
    )
    if ahead > MOVED:
        sentence += (
            f". {ahead:.0%} of the decoder's self-attention is on tokens yet to come: the causal mask is missing."
        )
        return Finding("causal leak", "red", sentence, moved, "no-causal-mask")
    return Finding("causal leak", "red", sentence + ", though no weight is on tokens yet to come.", moved)


def pad_influence(subject: Subject) -> Finding:
    """Put PAD behind a source: nothing may move."""
    src, tgt_in = subject.shortest()
    room = min(PAD_ADDED, subject.model.max_seq_len - src.shape[1])
    if room < 1:
        return Finding("PAD influence", "green", "No room to put PAD behind its shortest source.")
    wider = F.pad(src, (0, room), value=PAD_ID)
    moved = _moved(subject.logits(src, tgt_in), subject.logits(wider, tgt_in))
    if moved < MOVED:
        return Finding("PAD influence", "green", "PAD behind a source moves nothing.", moved)
    sentence = f"PAD behind a source moves the logits, by {moved:.2g} of their spread"
    with torch.no_grad():
        maps = forward_with_attention(subject.model, wider, tgt_in)[1]
        ends = [subject.model.encode(each).final for each in (src, wider)]
    weights = maps.over_source(wider.shape[1])
    share = 0.0 if weights is None else weights[..., -room:].sum(dim=-1).mean().item()
    if share > MOVED:
        sentence += f", and gets {share:.0%} of the attention: the mask of the source lets PAD through."
        return Finding("PAD influence", "red", sentence, moved, "pad-attended-to")
    if ends[0] is not None and _moved(*ends) > MOVED:
        sentence += ", though it gets no attention: the encoder's last state is that behind the PAD."
        return Finding("PAD influence", "red", sentence, moved, "encoder-over-pad")
    return Finding("PAD influence", "red", sentence + ", though it gets no attention.", moved)


def order_of_source(subject: Subject) -> Finding:
    """Exchange two source tokens: logits must move."""
    src, tgt_in = subject.few
    rows = [row for row in range(len(src)) if _two_places(src[row]) is not None]
    if not rows:
        return Finding("order of the source", "green", "Its sources have no two different tokens to exchange.")
    swapped = src.clone()
    for row in rows:
        first, last = _two_places(src[row])
        swapped[row, [first, last]] = src[row, [last, first]]
    moved = _moved(subject.logits(src, tgt_in)[rows], subject.logits(swapped, tgt_in)[rows])
    if moved < MOVED:
        sentence = "Exchanging two source tokens moves no logit"
        if _placeless(subject.model):
            sentence += ", and a token's embedding is the same everywhere: it does not know where a token stands."
            return Finding("order of the source", "red", sentence, moved, "no-positions")
        sentence += ", though their embeddings differ by place: what it writes does not depend on the source's order."
        return Finding("order of the source", "red", sentence, moved)
    sentence = f"Exchanging two source tokens moves the logits, by {moved:.2g} of their spread."
    return Finding("order of the source", "green", sentence, moved)


@torch.no_grad()
def _placeless(model: nn.Module) -> bool:
    """Tell whether every embedding of a model gives a token the same vector at two places."""
    pairs = [
        module(torch.full((1, 2), EOS_ID, device=module.tokens.weight.device))[0]
        for module in model.modules()
        if isinstance(module, Embedding)
    ]
    return all(torch.equal(one, other) for one, other in pairs)


def _two_places(row: torch.Tensor) -> tuple[int, int] | None:
    """Return the first place of a source (S,) and the last one that holds another symbol."""
    places = [place for place, token in enumerate(row.tolist()) if token not in (PAD_ID, BOS_ID, EOS_ID)]
    others = [place for place in places if row[place] != row[places[0]]]
    return (places[0], others[-1]) if others else None


def _moved(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the largest change, in standard deviations."""
    if not before.numel():
        return 0.0
    return ((before - after).abs().max() / before.std().clamp(min=1e-12)).item()
