"""Gradients of a training state on several batches, each by itself: statistics by parameter, and how they vary."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

import torch
import torch.nn.functional as F

from core.training.gradient_statistics import GradientStatistics, Piece, parameter_pieces, statistics_of
from core.training.loop import accumulate_gradients, batches_of, draw_batches
from core.training.state import TrainingState


@dataclass(frozen=True)
class BatchGradients:
    """The gradients of one parameter on the batches of several updates, at the same weights, before clipping.

    Attributes:
        mean: statistics of its gradient. ``min`` and ``max`` are the least and the greatest element on any batch, all
            others means over the batches.
        norm_std: standard deviation of the norm over the batches; None where there is no gradient.
        cosine: mean cosine similarity of the gradients of successive batches: 1 the same direction, 0 unrelated; None
            for a single batch, or where a gradient is zero or missing.
    """

    mean: GradientStatistics
    norm_std: float | None
    cosine: float | None

    def as_data(self) -> dict[str, Any]:
        """Return all figures as plain data for JSON."""
        return asdict(self.mean) | {"norm_std": self.norm_std, "cosine": self.cosine}


def measure_gradients(state: TrainingState, updates: int) -> list[BatchGradients]:
    """Measure the gradients that the next updates would have, if each of them began with the present weights.

    Args:
        state: its weights stay as they are; its generator draws batches and dropout, as in training.
        updates: how many; each has as many batches as the preset accumulates.

    Returns:
        One entry for each parameter; see ``core.training.gradient_statistics.parameter_pieces``.
    """
    batches, pieces = batches_of(state), parameter_pieces(state.model)
    taken: list[list[GradientStatistics]] = [[] for _ in pieces]
    cosines: list[list[float]] = [[] for _ in pieces]
    last: list[torch.Tensor | None] = [None] * len(pieces)
    was_training = state.model.training
    state.model.train()
    try:
        for update in range(state.step + 1, state.step + updates + 1):
            accumulate_gradients(state, draw_batches(state, batches, update))
            for at, piece in enumerate(pieces):
                taken[at].append(statistics_of(piece))
                cosines[at] += _cosine(last[at], piece)
                last[at] = None if piece.gradient is None else piece.gradient.clone()
    finally:
        state.optimizer.zero_grad(set_to_none=True)
        state.model.train(was_training)
    return [_summary(of_piece, between) for of_piece, between in zip(taken, cosines, strict=True)]


def _cosine(before: torch.Tensor | None, piece: Piece) -> Iterator[float]:
    after = piece.gradient
    if before is not None and after is not None and before.any() and after.any():
        yield F.cosine_similarity(before.flatten().double(), after.flatten().double(), dim=0).item()


def _summary(taken: list[GradientStatistics], cosines: list[float]) -> BatchGradients:
    """Summarize the statistics of one parameter over the batches on which it has a gradient."""
    first, known = taken[0], [each for each in taken if each.norm is not None]
    if not known:
        return BatchGradients(first, None, None)

    def of(name: str) -> list[float]:
        return [getattr(each, name) for each in known]

    means = {name: fmean(of(name)) for name in ("norm", "mean", "std", "zeros")}
    mean = GradientStatistics(first.parameter, first.projection, min=min(of("min")), max=max(of("max")), **means)
    return BatchGradients(mean, pstdev(of("norm")), fmean(cosines) if cosines else None)
