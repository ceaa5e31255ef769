"""The health of a run over its training: every measure as a series by step, for charts, tables and CSV files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.interpret.health import Figure, HeadFigures, Health, head_marks
from core.interpret.snapshots import Snapshot
from core.models.seq2seq import Head

OF_HEADS = (
    *("entropy", "entropy_share", "distance", "reach", "change", "output_share", "fixed_key_mass"),
    *("induction", "previous_token"),
)
OF_PARTS = ("perplexity", "gradient_norm", "update_size", "layer_rms", "logit_rms", "fourier_power", "diversity")
MEASURES = (*OF_PARTS, *OF_HEADS)

Series = dict[str, dict[str, list[Figure]]]  # by measure and by what is measured: part, layer or head


@dataclass(frozen=True)
class MarkedHead:
    """A head with the name of its mark; see ``core.interpret.health.MARKS``."""

    head: Head
    mark: str


def health_steps(snapshots: Sequence[Snapshot]) -> list[tuple[int, Health]]:
    """Return step and health of the snapshots that have it; [] for runs of versions that did not record it."""
    return [(each.step, each.health) for each in snapshots if each.health]


def health_series(course: Iterable[Health], *, max_heads: int | None = None) -> Series:
    """Return every measure of a course, {measure: {name: one value per step}}, None for missing values.

    Names are parts ("embeddings", "encoder.1", "output"), attention layers ("cross.1"), heads ("cross.1.2"),
    frequencies ("frequency.1") for the Fourier power of embeddings, or "validation" for the perplexity.

    Args:
        max_heads: for a model with more heads, the series of heads are means over each attention layer.
    """
    flat = [_flat(health, max_heads) for health in course]
    series: Series = {measure: {} for measure in MEASURES}
    for measure, of_measure in series.items():
        names = dict.fromkeys(name for figures in flat for name in figures[measure])
        of_measure.update({name: [figures[measure].get(name) for figures in flat] for name in names})
    return series


def health_rows(snapshots: Sequence[Snapshot]) -> list[list[str | Figure]]:
    """Return a course as rows of a CSV file: a header, then one row per step; None for a missing value."""
    course = health_steps(snapshots)
    series = health_series(health for _, health in course)
    columns = [(f"{measure} {name}", values) for measure, of in series.items() for name, values in of.items()]
    rows: list[list[str | Figure]] = [["step", *(title for title, _ in columns)]]
    rows += [[step, *(values[at] for _, values in columns)] for at, (step, _) in enumerate(course)]
    return rows


def marked_heads(health: Health) -> list[MarkedHead]:
    """Return the heads that have a mark, in the order of the blocks, layers and heads."""
    return [
        MarkedHead(Head(block, layer, head), mark)
        for block, layers in head_marks(health.heads).items()
        for layer, of_layer in enumerate(layers, start=1)
        for head, mark in enumerate(of_layer, start=1)
        if mark
    ]


def _flat(health: Health, max_heads: int | None) -> dict[str, dict[str, Figure]]:
    heads = health.heads
    num_heads = sum(len(of_layer) for layers in heads.entropy.values() for of_layer in layers)
    by_layer = max_heads is not None and num_heads > max_heads
    flat: dict[str, dict[str, Figure]] = {
        "perplexity": {"validation": health.perplexity},
        "gradient_norm": health.gradient_norm or {},
        "update_size": health.update_size or {},
        "layer_rms": heads.layer_rms,
        "logit_rms": {} if heads.logit_rms is None else {"output": heads.logit_rms},
        "fourier_power": {f"frequency.{number}": share for number, share in enumerate(heads.fourier_power, start=1)},
        "diversity": {
            f"{block}.{layer}": value
            for block, values in heads.diversity.items()
            for layer, value in enumerate(values, start=1)
            if value is not None
        },
    }
    for measure in OF_HEADS:
        flat[measure] = {}
        figures: dict[str, HeadFigures] = getattr(heads, measure)
        for block, layers in figures.items():
            for layer, of_layer in enumerate(layers, start=1):
                known = [value for value in of_layer if value is not None]
                if by_layer:
                    flat[measure][f"{block}.{layer}"] = sum(known) / len(known) if known else None
                else:
                    of_heads = {f"{block}.{layer}.{head}": value for head, value in enumerate(of_layer, start=1)}
                    flat[measure] |= of_heads
    return flat
