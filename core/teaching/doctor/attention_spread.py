"""How a model's attention is spread: over later tokens, and over the end of the source."""

from dataclasses import dataclass

import torch

from core.interpret.any_module.attention_calls import AttentionCall
from core.models.seq2seq import Block

ROUNDING = 1e-9  # of equal weights
SUM_WITHIN = 1e-3  # of 1
VISIBLE = 1e-6  # a smaller weight is rounding, or a mask of -10,000


@dataclass(frozen=True)
class Ahead:
    """How the decoder's self-attention is spread.

    Attributes:
        later: the mean weight on later tokens.
        applied: the mean of what multiplies the values of later tokens: not ``later`` if a mask follows the softmax.
        earlier: the mean weight on earlier tokens, of positions that count and do not attend to all tokens alike.
        reach: the largest distance at which a later token has any.
        farthest: the distance from the first to the last position.
        heads: numbers of heads: those that attend to later tokens, and all of the same calls.
        is_uniform: whether every position that attends to later tokens attends to all tokens alike, as it does where a
            mask of large negative scores hides all of them.
    """

    later: float
    applied: float
    earlier: float
    reach: int
    farthest: int
    heads: tuple[int, int]
    is_uniform: bool


def attention_ahead(calls: list[AttentionCall], is_real: torch.Tensor) -> Ahead | None:
    """Return how the decoder's self-attention is spread; None without such calls, or if rows do not sum to 1.

    Args:
        calls: of attention.
        is_real: (B, T) bool, whether each of the last positions counts; of fewer positions, each of the first.
    """
    of_decoder = [call for call in calls if call.block == "decoder"]
    maps = [_finite(call.weights)[..., -call.weights.shape[-2] :] for call in of_decoder]
    applied = [_applied(call)[..., -call.weights.shape[-2] :] for call in of_decoder]
    if not maps or not _are_normalized(calls):
        return None
    later, used = (
        sum(each.triu(1).sum(dim=-1).mean().item() for each in of_calls) / len(maps) for of_calls in (maps, applied)
    )
    earlier = sum(_mean_on_earlier(each, is_real[:, : each.shape[-2]]) for each in maps) / len(maps)
    reach = [
        at for each in maps for at in range(1, each.shape[-1]) if bool((each.diagonal(at, -2, -1) > VISIBLE).any())
    ]
    leaking = [each[(each.triu(1) > VISIBLE).any(dim=-1)] for each in maps]  # rows (N, T)
    is_uniform = all(bool((rows.amax(dim=-1) - rows.amin(dim=-1) < ROUNDING).all()) for rows in leaking)
    farthest = max(each.shape[-1] for each in maps) - 1
    by_head = [_by_head(each.triu(1).sum(dim=-1)) for each in maps]
    leaks = [each > VISIBLE for each in by_head if bool((each > VISIBLE).any())]
    heads = sum(int(each.sum()) for each in leaks), sum(map(len, leaks))
    return Ahead(later, used, earlier, max(reach, default=0), farthest, heads, is_uniform)


def _mean_on_earlier(weights: torch.Tensor, is_real: torch.Tensor) -> float:
    num_real = is_real.shape[1]
    rows = weights[..., -num_real:, :]
    chooses = (rows.amax(dim=-1) - rows.amin(dim=-1) >= ROUNDING) & is_real[:, None]
    found = weights.tril(-1)[..., -num_real:, :][chooses]
    return found.sum(dim=-1).mean().item() if len(found) else 0.0


def attention_to_end(
    calls: list[AttentionCall], length: int, num_last: int, *, applied: bool = False
) -> dict[Block, torch.Tensor]:
    """Return the mean fraction of attention on the last source tokens by head, (H,), of each block's highest call.

    None at all if rows of weights do not sum to 1, so that they are no fractions.

    Args:
        length: of the source.
        num_last: number of tokens at its end.
        applied: count what multiplies the values in place of the weights.
    """
    masses: dict[Block, torch.Tensor] = {}
    for call in calls if _are_normalized(calls) else []:
        num_queries, num_keys = call.weights.shape[-2:]
        reads_source = num_keys == (length + num_queries if call.block == "decoder" else length)
        if call.block and reads_source:  # a decoder that reads the source has it before the target
            weights = _applied(call) if applied else _finite(call.weights)
            by_head = _by_head(weights[..., length - num_last : length].sum(dim=-1))
            if call.block not in masses or by_head.mean() > masses[call.block].mean():
                masses[call.block] = by_head
    return masses


def _by_head(rows: torch.Tensor) -> torch.Tensor:
    """Return the mean of each head, (H,), of a figure of every query, (B, H, T), or (B, T) if heads are not seen."""
    return rows.mean(dim=(0, 2)) if rows.dim() == 3 else rows.mean().view(1)


def _are_normalized(calls: list[AttentionCall]) -> bool:
    """Whether the weights of every query sum to 1, or to 0 where nothing may be attended to."""
    sums = [_finite(call.weights).sum(dim=-1) for call in calls]
    return all(bool((torch.minimum((each - 1).abs(), each.abs()) < SUM_WITHIN).all()) for each in sums)


def _applied(call: AttentionCall) -> torch.Tensor:
    """Return what multiplies the values in a call: its weights, unless something else was seen."""
    return _finite(call.weights if call.applied is None else call.applied)


def _finite(weights: torch.Tensor) -> torch.Tensor:
    """Return weights with 0 in rows that are NaN, as PyTorch's are where nothing may be attended to."""
    return weights.nan_to_num(0.0)
