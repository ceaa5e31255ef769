"""The health section of a report: the last recorded measures of parts, layers and heads, with the marks of heads."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.interpret.health import MARKS, Figure, Health
from core.interpret.health_course import health_steps, marked_heads
from core.interpret.snapshots import Snapshot
from core.models.seq2seq import Head
from core.reports.report.tables import Rows

MAX_LISTED = 64  # heads; of a larger model only those with a mark, and as many of them


@dataclass(frozen=True)
class HealthSection:
    """The content of the section.

    Attributes:
        step: of the measures.
        perplexity: on the validation set, as text.
        parts: table of gradient norm, update size and output size by part.
        heads: table of the measures of heads.
        marks: meaning of the marks that occur, one sentence each.
        is_partial: whether heads without a mark are left out.
        unlisted: number of heads with a mark that are left out, too.
    """

    step: int
    perplexity: str
    parts: Rows
    heads: Rows
    marks: list[str]
    is_partial: bool
    unlisted: int


def health_section(snapshots: Sequence[Snapshot]) -> HealthSection | None:
    """Return the section about the last snapshot; None for runs that recorded no health."""
    course = health_steps(snapshots)
    if not course:
        return None
    step, health = course[-1]
    marks = {str(each.head): each.mark for each in marked_heads(health)}
    heads = [
        Head(block, layer, head)
        for block, layers in health.heads.entropy.items()
        for layer, of_layer in enumerate(layers, start=1)
        for head in range(1, len(of_layer) + 1)
    ]
    is_partial = len(heads) > MAX_LISTED
    shown = [head for head in heads if str(head) in marks] if is_partial else heads
    meanings = [f"{mark}: {text}." for mark, text in MARKS.items() if mark in marks.values()]
    rows = [_head_row(health, head, marks.get(str(head), "")) for head in shown[:MAX_LISTED]]
    header = ["head", *_of_heads(health).values(), "mark"]
    table = [header, *rows] if rows else []
    unlisted = max(0, len(shown) - MAX_LISTED)
    return HealthSection(step, _perplexity(health.perplexity), _parts(health), table, meanings, is_partial, unlisted)


def _parts(health: Health) -> Rows:
    gradients, updates = health.gradient_norm or {}, health.update_size or {}
    sizes = health.heads.layer_rms | ({} if health.heads.logit_rms is None else {"output": health.heads.logit_rms})
    return [
        ["part", "gradient norm", "update size", "size of the output"],
        *(
            [part, *(_text(of.get(part)) for of in (gradients, updates, sizes))]
            for part in dict.fromkeys([*gradients, *sizes])
        ),
    ]


def _head_row(health: Health, head: Head, mark: str) -> list[str]:
    figures = [getattr(health.heads, name).get(head.block) for name in _of_heads(health)]
    return [str(head), *(_text(of and of[head.layer - 1][head.head - 1]) for of in figures), mark or "–"]


def _of_heads(health: Health) -> dict[str, str]:
    """Return the titles of the measures of heads by name; those of induction only where they were measured."""
    titles = {
        "entropy": "entropy, nats",
        "entropy_share": "of uniform",
        "distance": "distance",
        "reach": "reach",
        "change": "change",
        "output_share": "share of output",
    }
    return titles | ({"induction": "induction", "previous_token": "token before"} if health.heads.induction else {})


def _text(value: Figure) -> str:
    return "–" if value is None else f"{value:.3g}"


def _perplexity(value: Figure) -> str:
    return "–" if value is None else f"{value:.4f}"  # near 1 the digits after the point tell runs apart
