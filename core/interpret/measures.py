"""Measures of attention rows: one formula per function.

Letters as in ``map_rows.MapRows``: L layers, H heads, N rows, K keys, S source columns.
"""

import torch

TINY = torch.finfo(torch.float32).tiny


def attention_mass(weights: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Return the attention weight of each row that falls on the marked keys, 0-1.

    On the gold alignment this is the expected-pattern score: 1 for a head that attends only to the token's source. If a
    token may come from several keys, their weights are summed.

    Args:
        weights: (L, H, N, K) float.
        cells: (N, S) bool, marks some of the first S keys; S <= K.

    Returns:
        (L, H, N) float.
    """
    return (weights[..., : cells.shape[-1]] * cells).sum(dim=-1)


def uniform_mass(visible: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Return the ``attention_mass`` of uniform attention over a row's visible keys, (N,) float: the baseline.

    Args:
        visible: (N, K) bool, True where the row may attend.
        cells: (N, S) bool, some of them.
    """
    return cells.sum(dim=-1) / visible.sum(dim=-1)


def argmax_weights(weights: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Return each row's argmax as (L, H, N, K) float: 1 at the key with the largest weight, 0 elsewhere.

    If m keys tie, each gets 1/m. A row with its largest weight on an invisible key is all zeros.
    """
    is_largest = (weights == weights.amax(dim=-1, keepdim=True)) & visible
    return is_largest / is_largest.sum(dim=-1, keepdim=True).clamp(min=1)


def argmax_accuracy(weights: torch.Tensor, visible: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Return whether the argmax over the source is a marked column, (L, H, N) float, 0 or 1.

    If m keys tie, the fraction of them that is marked. Uniform attention scores its ``uniform_mass`` over the source.

    Args:
        weights: (L, H, N, K) float; the first S keys are the source.
        visible: (N, K) bool.
        cells: (N, S) bool.
    """
    width = cells.shape[-1]
    return attention_mass(argmax_weights(weights[..., :width], visible[:, :width]), cells)


def aer_row_weights(cells: torch.Tensor) -> torch.Tensor:
    """Return the weight of each row in the alignment error rate, (N,) float.

    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), Och & Ney 2003. A are the predicted links, one per row: its argmax. P
    are the possible links, all cells; S are the sure links, those of rows with exactly one cell. A row with a sure link
    therefore has weight 2, a row with several possible links 1, and a row without links 0. With these weights AER is
    the weighted mean of 1 − ``argmax_accuracy``. If every row has one gold link, it is 1 − the mean accuracy.

    Args:
        cells: (N, S) bool.
    """
    links = cells.sum(dim=-1)
    return (links > 0).float() + (links == 1).float()


def normalized_entropy(weights: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Return each row's entropy divided by the log of its number of visible keys, (L, H, N) float.

    0 is all weight on one key, 1 is uniform. A causal row is compared with the keys visible to it, and PAD does not
    make a row look sharper. Weight on invisible keys is ignored.

    Args:
        visible: (N, K) bool, at least two keys per row.
    """
    masked = weights * visible
    probabilities = masked / masked.sum(dim=-1, keepdim=True).clamp(min=TINY)
    return torch.special.entr(probabilities).sum(dim=-1) / visible.sum(dim=-1).log()


def offset_counts(weights: torch.Tensor, visible: torch.Tensor, offsets: torch.Tensor, *, span: int) -> torch.Tensor:
    """Count the argmaxes by their offset from the row: (L, H, 2 · span + 1) float, offsets -span to span.

    Voita et al. 2019 call a head positional if at least 90 % of its argmaxes are at one offset.

    Args:
        offsets: (N, K) int64, from -span to span.
    """
    largest = argmax_weights(weights, visible).flatten(start_dim=2)
    counts = largest.new_zeros(*largest.shape[:2], 2 * span + 1)
    return counts.index_add(2, (offsets + span).flatten(), largest)


def head_distances(weights: torch.Tensor) -> torch.Tensor:
    """Sum over rows the distance between each two heads of a layer, (L, H, H) float; per row 0 equal, 1 disjoint.

    It is the Jensen–Shannon distance, √(H((p + q) / 2) − (H(p) + H(q)) / 2) with entropies in bits (Endres & Schindelin
    2003): the square root of the divergence with which Clark et al. 2019 compare heads, and therefore a metric.
    """
    layers, heads = weights.shape[:2]
    own = _entropy_in_bits(weights)
    distances = weights.new_zeros(layers, heads, heads)
    for first in range(heads):
        for second in range(first + 1, heads):  # one pair at a time: all pairs together would not fit into memory
            of_mean = _entropy_in_bits((weights[:, first] + weights[:, second]) / 2)
            divergence = of_mean - (own[:, first] + own[:, second]) / 2  # (L, N)
            distances[:, first, second] = distances[:, second, first] = divergence.clamp(min=0).sqrt().sum(dim=-1)
    return distances


def layer_distances(weights: torch.Tensor) -> torch.Tensor:
    """Sum over rows the distance between each two layers' mean patterns, (L, L) float; per row 0 equal, 1 disjoint.

    The mean pattern of a layer is the mean of its heads' weights, so the order of the heads does not matter. The
    distance is that of ``head_distances``.

    Args:
        weights: (L, H, N, K) float.
    """
    return head_distances(weights.mean(dim=1)[None])[0]


def _entropy_in_bits(weights: torch.Tensor) -> torch.Tensor:
    """Return the entropy of rows (…, K) in bits, (…)."""
    return torch.special.entr(weights).sum(dim=-1) / torch.log(torch.tensor(2.0))
