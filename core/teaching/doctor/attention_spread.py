"""How a model's attention is spread: over later tokens, and over the end of the source."""

from dataclasses import dataclass

import torch

from core.interpret.any_module.attention_calls import AttentionCall
from core.models.seq2seq import Block

ROUNDING = 1e-9  # of equal weights
SUM_WITHIN = 1e-3  # of 1
SOFTMAX_ROUNDING = 1e-3  # of the sum of weights computed back from their softmax
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
        is_alike: whether the later tokens that such a position attends to have the same weight, as where a mask sets
            their scores to one number.
        is_softmax_again: whether the weights are the softmax of weights that were 0 at later tokens.
    """

    later: float
    applied: float
    earlier: float
    reach: int
    farthest: int
    heads: tuple[int, int]
    is_uniform: bool
    is_alike: bool
    is_softmax_again: bool


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
    is_alike = farthest > 1 and all(_are_alike(each, torch.ones_like(each, dtype=torch.bool).triu(1)) for each in maps)
    is_again = all(map(_is_softmax_of_weights, leaking))
    return Ahead(later, used, earlier, max(reach, default=0), farthest, heads, is_uniform, is_alike, is_again)


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
    for call in _reading_source(calls, length) if _are_normalized(calls) else []:
        weights = _applied(call) if applied else _finite(call.weights)
        by_head = _by_head(weights[..., length - num_last : length].sum(dim=-1))
        if call.block and (call.block not in masses or by_head.mean() > masses[call.block].mean()):
            masses[call.block] = by_head
    return masses


def how_to_end(calls: list[AttentionCall], length: int, num_last: int) -> tuple[bool, bool]:
    """Return ``is_alike`` and ``is_softmax_again`` of the weights on the last source tokens; see ``Ahead``."""
    attending = []
    for weights in (_finite(call.weights) for call in _reading_source(calls, length)):
        is_last = torch.zeros_like(weights, dtype=torch.bool)
        is_last[..., length - num_last : length] = True
        if bool((weights[is_last] > VISIBLE).any()):
            attending.append((weights, is_last))
    is_alike = num_last > 1 and all(_are_alike(*each) for each in attending)
    return is_alike, all(_is_softmax_of_weights(weights.flatten(0, -2)) for weights, _ in attending)


def _reading_source(calls: list[AttentionCall], length: int) -> list[AttentionCall]:
    """Return the calls whose keys are the source; a decoder that reads it has it before the target."""
    sizes = [(call, *call.weights.shape[-2:]) for call in calls if call.block]
    return [call for call, rows, keys in sizes if keys == (length + rows if call.block == "decoder" else length)]


def _are_alike(weights: torch.Tensor, among: torch.Tensor) -> bool:
    """Whether in every row the visible weights of those marked, both (…, K), are the same."""
    seen = among & (weights > VISIBLE)
    largest, least = weights.masked_fill(~seen, 0).amax(dim=-1), weights.masked_fill(~seen, 1).amin(dim=-1)
    return bool((largest - least)[seen.any(dim=-1)].abs().lt(ROUNDING).all())


def _is_softmax_of_weights(rows: torch.Tensor) -> bool:
    """Whether rows (N, K) are the softmax of weights that sum to 1 and are 0 at some key, which then has the least."""
    sums = (rows / rows.amin(dim=-1, keepdim=True)).log().sum(dim=-1)
    return bool(((sums - 1).abs() < SOFTMAX_ROUNDING).all())


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
