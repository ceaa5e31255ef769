"""Let a model write: token by token, each chosen from what it has written so far."""

from dataclasses import dataclass

import torch

from core.models import AttentionMaps, Seq2Seq
from core.vocab import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class Decoded:
    """What a model wrote for a batch of sources.

    Attributes:
        tokens: (B, T) int64, the tokens produced, EOS included, PAD behind it.
        candidates: (B, T, C) int64, the C likeliest tokens at each step, likeliest first.
        probabilities: (B, T, C) float, their probabilities.
        maps: attention recorded at these very steps: row t belongs to the step that *produced* ``tokens[:, t]``
            after *reading* the token before it (BOS at t = 0); None unless asked for.
    """

    tokens: torch.Tensor
    candidates: torch.Tensor
    probabilities: torch.Tensor
    maps: AttentionMaps | None

    @property
    def stopped(self) -> torch.Tensor:
        """(B,) bool: whether each sequence ended by its own EOS."""
        return (self.tokens == EOS_ID).any(dim=1)


@torch.no_grad()
def decode(
    model: Seq2Seq, src: torch.Tensor, *, max_steps: int, num_candidates: int = 1, need_weights: bool = False
) -> Decoded:
    """Decode greedily: the likeliest token at each step, until EOS.

    Args:
        model: in evaluation mode.
        src: (B, S) int64, BOS first, EOS last.
        max_steps: most tokens to produce, EOS included; at most the model's ``max_seq_len``.
        num_candidates: how many of the likeliest tokens to report at each step.
        need_weights: record the attention of every head.

    Raises:
        ValueError: the source is longer than the model can read.
    """
    memory = model.encode(src, need_weights=need_weights)
    token = torch.full((len(src), 1), BOS_ID, device=src.device)
    finished = torch.zeros(len(src), 1, dtype=torch.bool, device=src.device)
    cache, tokens, candidates, probabilities, decoder_rows, cross_rows = None, [], [], [], [], []
    for _ in range(max_steps):
        step = model.decode(token, memory, cache, need_weights=need_weights)
        cache = step.cache
        likeliest = step.logits.softmax(dim=-1).topk(min(num_candidates, step.logits.shape[-1]), dim=-1)
        token = likeliest.indices[:, :, 0].masked_fill(finished, PAD_ID)  # (B, 1)
        finished = finished | (token == EOS_ID)
        tokens.append(token)
        candidates.append(likeliest.indices)
        probabilities.append(likeliest.values)
        decoder_rows.append(step.decoder_weights)
        cross_rows.append(step.cross_weights)
        if finished.all():
            break
    maps = AttentionMaps(memory.weights, _stack_causal(decoder_rows), _stack(cross_rows)) if need_weights else None
    return Decoded(torch.cat(tokens, 1), torch.cat(candidates, 1), torch.cat(probabilities, 1), maps)


def _stack(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    """Join T steps' rows, each (L, B, H, 1, S), to (L, B, H, T, S)."""
    return None if rows[0] is None else torch.cat(rows, dim=3)


def _stack_causal(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    """Join T steps' rows, of which step t's is (L, B, H, 1, t), to (L, B, H, T, T), zero above the diagonal."""
    if rows[0] is None:
        return None
    width = rows[-1].shape[-1]
    return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[-1])) for row in rows], dim=3)
