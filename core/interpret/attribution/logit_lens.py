"""Logit lens: what the model would predict if it stopped after each sublayer (nostalgebraist 2020)."""

from dataclasses import dataclass
from functools import partial

import torch

from core.interpret.attribution.prediction import Prediction
from core.interpret.attribution.stack import residual_points, residual_stack
from core.models import Seq2Seq
from core.tasks import Task

LIMITS = (
    "Shows when the prediction can first be read off the residual stream with the final norm and the output layer; it "
    "cannot show what is there in another form, which later layers may still be able to use."
)
NUM_CANDIDATES = 5


@dataclass(frozen=True)
class LensRow:
    """The residual stream at one point, read as a prediction.

    Attributes:
        name: "embedding", or layer and sublayer, such as ``2 cross-attention``.
        layer: numbered from 1; 0 is the embedding.
        candidates: the most probable tokens with their probabilities, 0-1, best first.
        probability: of the target.
        rank: of the target among all tokens, 1 is the most probable.
        score: logit of the target, minus the foil's if there is one.
    """

    name: str
    layer: int
    candidates: tuple[tuple[str, float], ...]
    probability: float
    rank: int
    score: float


@dataclass(frozen=True, eq=False)
class LogitLens:
    """The lens over all points of the residual stream at the position that predicts one step's token.

    Attributes:
        rows: P points in the order of computation; the last is the model's own prediction.
        logits: (P, V) float, the logits at each point.
        first: index of the first row after which the target stays the most probable token; None if it is not in the
            last row.
    """

    rows: tuple[LensRow, ...]
    logits: torch.Tensor
    first: int | None


@torch.no_grad()
def logit_lens(model: Seq2Seq, task: Task, prediction: Prediction) -> LogitLens:
    """Apply the final norm and the output layer to the residual stream after each sublayer.

    The stream is that of the decoder at the step, or of an encoder-only model's encoder at ``prediction.position``.

    After post-norm layers there is no final norm: the stream has already been normalized at every point but the
    embedding.

    Args:
        model: in evaluation mode, of any family but the recurrent one.

    Raises:
        InputError: the model is recurrent, so it has no residual stream.
    """
    stack = residual_stack(model, method="the logit lens")
    points, streams = residual_points(stack.layers), dict[str, torch.Tensor]()
    stack.logits(prediction, {point.name: partial(streams.__setitem__, name) for name, _, point in points})
    at_position = [streams[name][0, prediction.row] for name, _, _ in points]
    logits = stack.unembed(torch.stack(at_position)[None])[0]  # (P, V)
    probabilities = logits.softmax(dim=-1)
    top = probabilities.topk(min(NUM_CANDIDATES, logits.shape[-1]), dim=-1)
    ranks = (logits > logits[:, prediction.target, None]).sum(dim=-1) + 1
    rows = tuple(
        LensRow(
            name,
            layer,
            tuple(zip(task.tgt_vocab.decode(top.indices[at].tolist()), top.values[at].tolist(), strict=True)),
            probabilities[at, prediction.target].item(),
            int(ranks[at]),
            prediction.score(logits[at]).item(),
        )
        for at, (name, layer, _) in enumerate(points)
    )
    return LogitLens(rows, logits, _first([row.rank == 1 for row in rows]))


def _first(is_top: list[bool]) -> int | None:
    """Return the start of the final run of True; None if the last value is False."""
    run = next((length for length, each in enumerate(reversed(is_top)) if not each), len(is_top))
    return len(is_top) - run if run else None
