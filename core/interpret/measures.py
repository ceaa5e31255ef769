"""What rows of attention maps are measured by: one formula a function.

Letters as in ``rows.Rows``: L layers, H heads, N rows, K keys, S source columns.
"""

import torch

TINY = torch.finfo(torch.float32).tiny


def share_on(weights: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Return how much of each row's attention falls on some keys, 0-1.

    On the task's true map this is the expected-pattern score: 1 for a head that looks where the token comes from and
    nowhere else. Where a token may come from several keys, they count together.

    Args:
        weights: (L, H, N, K) float.
        cells: (N, S) bool, of the first S keys; S = K or fewer.

    Returns:
        (L, H, N) float.
    """
    return (weights[..., : cells.shape[-1]] * cells).sum(dim=-1)


def uniform_share(seen: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Return what ``share_on`` would be if all keys that a row may look at got the same weight, (N,) float.

    Args:
        seen: (N, K) bool, the keys that a row may look at.
        cells: (N, S) bool, some of them.
    """
    return cells.sum(dim=-1) / seen.sum(dim=-1)


def largest(weights: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return each row's arg-max as (L, H, N, K) float: 1 at the key with the largest weight, 0 elsewhere.

    Where m keys share the largest weight, each gets 1/m. A row whose largest weight is on a key that it may not look
    at gets no arg-max.
    """
    is_largest = (weights == weights.amax(dim=-1, keepdim=True)) & seen
    return is_largest / is_largest.sum(dim=-1, keepdim=True).clamp(min=1)


def hits(weights: torch.Tensor, seen: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Return whether the arg-max over the source is where the token may come from, (L, H, N) float.

    1 for yes and 0 for no; where m keys share the largest weight, how many of them are such, divided by m. Uniform
    attention scores ``uniform_share`` over the source.

    Args:
        weights: (L, H, N, K) float, of which the first S keys are the source.
        seen: (N, K) bool.
        cells: (N, S) bool.
    """
    width = cells.shape[-1]
    return share_on(largest(weights[..., :width], seen[:, :width]), cells)


def link_counts(cells: torch.Tensor) -> torch.Tensor:
    """Return how much each row counts for in the alignment error rate, (N,) float.

    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), Och & Ney 2003. A are the links found: one a row, to its arg-max. P
    are the possible links, which is all cells; S the sure ones, those of rows with one cell only. So a row with a sure
    link counts twice, one with several possible links once, and one with none not at all: with these counts, AER is
    the weighted mean of 1 − ``hits``. Where every row has one true link, it is 1 − the mean of ``hits``.

    Args:
        cells: (N, S) bool.
    """
    links = cells.sum(dim=-1)
    return (links > 0).float() + (links == 1).float()


def entropy(weights: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return each row's entropy divided by the logarithm of the number of keys that it may look at, (L, H, N) float.

    0 is all on one key, 1 spread evenly; so a causal row is measured by the tokens there were by then, and PAD does
    not make a row look sharper. Weight on other keys is left out.

    Args:
        seen: (N, K) bool, two keys a row or more.
    """
    kept = weights * seen
    spread = kept / kept.sum(dim=-1, keepdim=True).clamp(min=TINY)
    return torch.special.entr(spread).sum(dim=-1) / seen.sum(dim=-1).log()


def offset_counts(weights: torch.Tensor, seen: torch.Tensor, offsets: torch.Tensor, *, span: int) -> torch.Tensor:
    """Count at which offsets from their rows the arg-maxes are: (L, H, 2 · span + 1) float, of -span to span.

    Voita et al. 2019 call a head positional if at least 90 % of them are at one offset.

    Args:
        offsets: (N, K) int64, within the span.
    """
    found = largest(weights, seen).flatten(start_dim=2)
    counts = found.new_zeros(*found.shape[:2], 2 * span + 1)
    return counts.index_add(2, (offsets + span).flatten(), found)


def distances(weights: torch.Tensor) -> torch.Tensor:
    """Sum over rows how far the heads of a layer are from each other, (L, H, H) float: 0 alike, 1 apart, a row.

    It is the Jensen–Shannon distance, √(H((p + q) / 2) − (H(p) + H(q)) / 2) with entropies in bits (Endres &
    Schindelin 2003): the root of the divergence that Clark et al. 2019 compare heads by, so that it is a metric.
    """
    layers, heads = weights.shape[:2]
    own = _bits(weights)
    between = weights.new_zeros(layers, heads, heads)
    for first in range(heads):
        for second in range(first + 1, heads):  # one pair at a time: all at once would not fit
            of_mean = _bits((weights[:, first] + weights[:, second]) / 2)
            divergence = of_mean - (own[:, first] + own[:, second]) / 2  # (L, N)
            between[:, first, second] = between[:, second, first] = divergence.clamp(min=0).sqrt().sum(dim=-1)
    return between


def _bits(weights: torch.Tensor) -> torch.Tensor:
    """Return the entropy of rows (…, K) in bits, (…)."""
    return torch.special.entr(weights).sum(dim=-1) / torch.log(torch.tensor(2.0))
