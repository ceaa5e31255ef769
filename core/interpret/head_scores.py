"""Alignment scores: how well each head that attends to the source follows the gold alignment."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.generation import GenerationResult
from core.interpret.map_rows import map_rows, source_block
from core.interpret.measures import aer_row_weights, argmax_accuracy, attention_mass, uniform_mass
from core.tasks import Batch, Task


@dataclass(frozen=True)
class HeadScore:
    """How well one head follows the gold alignment: means over steps with a token that comes from the source.

    If a token may come from several source tokens, they count together.

    Attributes:
        layer: numbered from 1.
        head: numbered from 1.
        attention_mass: mean attention weight on the gold source token, 0-1.
        argmax_accuracy: fraction of steps with the largest weight over the source on the gold token, 0-1.
        uniform_mass: the ``attention_mass`` of uniform attention, 0-1: the baseline.
        aer: alignment error rate of the largest weights, 0-1; see ``aer_row_weights``.
        uniform_aer: the same for columns chosen at random, 0-1.
    """

    layer: int
    head: int
    attention_mass: float
    argmax_accuracy: float
    uniform_mass: float
    aer: float
    uniform_aer: float


def score_heads(task: Task, pairs: Batch, result: GenerationResult) -> list[HeadScore]:
    """Score the attention over the source of a generation that recorded its maps; [] without a gold alignment."""
    rows = map_rows(source_block(result), task, pairs, result)
    if rows is None or rows.produced is None or not rows.produced.any():
        return []
    has_source = rows.produced.any(dim=-1)
    weights, visible, cells = rows.weights[:, :, has_source], rows.visible[has_source], rows.produced[has_source]
    masses = attention_mass(weights, cells).mean(dim=-1).tolist()  # [L][H]
    accuracies = argmax_accuracy(weights, visible, cells)
    links = aer_row_weights(cells)
    errors = ((1 - accuracies) * links).sum(dim=-1) / links.sum()
    at_random = 1 - uniform_mass(visible[:, : cells.shape[-1]], cells)
    baselines = uniform_mass(visible, cells).mean().item(), ((at_random * links).sum() / links.sum()).item()
    per_layer = zip(masses, accuracies.mean(dim=-1).tolist(), errors.tolist(), strict=True)
    return [
        HeadScore(layer, head, mass, accuracy, baselines[0], error, baselines[1])
        for layer, of_layer in enumerate(per_layer, start=1)
        for head, (mass, accuracy, error) in enumerate(zip(*of_layer, strict=True), start=1)
    ]


def best_head_of_layer(scores: Sequence[HeadScore], layer: int) -> HeadScore:
    """Return the head of a layer with the largest attention mass on the gold source tokens."""
    return max((score for score in scores if score.layer == layer), key=lambda score: score.attention_mass)
