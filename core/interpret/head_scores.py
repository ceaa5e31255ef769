"""How well each head that looks at the source points at the token an answer's token comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.generation import GenerationResult
from core.interpret.measures import hits, share_on, uniform_share
from core.interpret.rows import rows_of, source_block
from core.tasks import Batch, Task


@dataclass(frozen=True)
class HeadScore:
    """How well one head that looks at the source points at the token each answer token comes from.

    It is scored at the steps that produce a token which comes from the source. Where that may come from several source
    tokens, they count together.

    Attributes:
        layer, head: numbered from 1.
        share: mean attention weight on the true source token, 0-1.
        hits: share of these steps whose largest weight over the source is on the true token, 0-1.
        uniform: what ``share`` would be if every token there was to look at got the same weight.
    """

    layer: int
    head: int
    share: float
    hits: float
    uniform: float


def score_decoded(task: Task, pairs: Batch, decoded: GenerationResult) -> list[HeadScore]:
    """Score the attention over the source of a decode that recorded its maps; [] where there is nothing to score."""
    rows = None if decoded.maps is None else rows_of(source_block(decoded), task, pairs, decoded)
    if rows is None or not rows.produced.any():
        return []
    counted = rows.produced.any(dim=-1)
    weights, seen, cells = rows.weights[:, :, counted], rows.seen[counted], rows.produced[counted]
    shares, largest = share_on(weights, cells).mean(dim=-1), hits(weights, seen, cells).mean(dim=-1)  # (L, H)
    uniform = uniform_share(seen, cells).mean().item()
    return [
        HeadScore(layer, head, share, hit, uniform)
        for layer, of_layer in enumerate(zip(shares.tolist(), largest.tolist(), strict=True), start=1)
        for head, (share, hit) in enumerate(zip(*of_layer, strict=True), start=1)
    ]


def best_of_layer(scores: Sequence[HeadScore], layer: int) -> HeadScore:
    """Return the head of a layer with the largest share on the true source tokens."""
    return max((score for score in scores if score.layer == layer), key=lambda score: score.share)
