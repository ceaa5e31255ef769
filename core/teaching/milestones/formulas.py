"""The formula of attention with each of the common mistakes, to recognize which one an implementation has made."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import torch

TOLERANCE = 1e-4  # relative to the largest output, for float32

Scale = Literal["root", "none", "width", "times root", "root of d_model", "root of the keys"]
Weights = Literal["keys", "queries", "heads", "no softmax", "sigmoid", "scaled after"]
Masking = Literal["before", "ignored", "after", "as zero", "transposed"]
Split = Literal["transposed", "viewed"]


@dataclass(frozen=True)
class Formula:
    """softmax(Q Kᵀ / √d_k) V with the choices that mistakes change; the defaults are right.

    Attributes:
        scale: what scores are divided by.
        weights: the axis of the softmax, or what takes its place.
        masking: how a mask is applied.
        values: the tensor that is averaged.
        split, merge: how a width is split into heads, and joined again; for several heads only.
        projected: whether the joined heads go through the output projection; for several heads only.
    """

    scale: Scale = "root"
    weights: Weights = "keys"
    masking: Masking = "before"
    values: Literal["values", "keys"] = "values"
    split: Split = "transposed"
    merge: Split = "transposed"
    projected: bool = True

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        may: torch.Tensor | None = None,
        *,
        num_heads: int = 1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return output (…, Tq, K) and weights (…, Tq, Tk) of queries (…, Tq, K) and keys and values (…, Tk, K).

        Args:
            query, key, value: float.
            may: bool, broadcastable to (…, Tq, Tk); True = may attend.
            num_heads: of which these are one or all; d_model is their number times K.
        """
        scores = self.scores(query, key, num_heads)
        masking = "ignored" if may is None else self.masking
        if may is not None and masking == "transposed":
            may = may.transpose(-2, -1)
        if may is not None and masking in ("before", "transposed"):
            scores = scores.masked_fill(~may, torch.finfo(scores.dtype).min)
        if may is not None and masking == "as zero":
            scores = scores * may
        weights = self._normalized(scores, key.shape[-1])
        if may is not None and masking == "after":
            weights = weights * may
        return weights @ (value if self.values == "values" else key), weights

    def scores(self, query: torch.Tensor, key: torch.Tensor, num_heads: int = 1) -> torch.Tensor:
        """Return the scores (…, Tq, Tk)."""
        d_k = query.shape[-1]
        divisor = {
            "root": math.sqrt(d_k),
            "none": 1.0,
            "width": d_k,
            "times root": 1 / math.sqrt(d_k),
            "root of d_model": math.sqrt(d_k * num_heads),
            "root of the keys": math.sqrt(key.shape[-2]),
        }[self.scale]
        return query @ key.transpose(-2, -1) / divisor

    def _normalized(self, scores: torch.Tensor, d_k: int) -> torch.Tensor:
        if self.weights == "no softmax":
            return scores
        if self.weights == "sigmoid":
            return scores.sigmoid()
        if self.weights == "scaled after":
            return (scores * math.sqrt(d_k)).softmax(dim=-1) / math.sqrt(d_k)
        axis = {"keys": -1, "queries": -2, "heads": -3}[self.weights]
        return scores.softmax(dim=max(axis, -scores.ndim))


RIGHT = Formula()


@dataclass(frozen=True)
class Mistake:
    """A change of the formula, with the likely cause in one line."""

    change: dict[str, Any]
    cause: str


MISTAKES = (
    Mistake({"scale": "none"}, "the scores are not scaled; divide them by √d_k before the softmax"),
    Mistake({"scale": "width"}, "the scores are divided by d_k; divide them by its square root"),
    Mistake({"scale": "times root"}, "the scores are multiplied by √d_k; divide by it"),
    Mistake(
        {"scale": "root of d_model"}, "the scores are divided by √d_model; d_k is the width of one head, K.size(-1)"
    ),
    Mistake({"scale": "root of the keys"}, "the scores are divided by √(number of keys); d_k is Q.size(-1)"),
    Mistake(
        {"weights": "queries"},
        "the softmax runs over the queries, so columns sum to 1 and rows do not; softmax(dim=-1) runs over the keys",
    ),
    Mistake({"weights": "heads"}, "the softmax runs over axis −3, the heads or the batch; use softmax(dim=-1)"),
    Mistake({"weights": "no softmax"}, "there is no softmax: the scores themselves weigh the values"),
    Mistake({"weights": "sigmoid"}, "a sigmoid takes the place of the softmax, so that rows do not sum to 1"),
    Mistake({"weights": "scaled after"}, "the scores are scaled after the softmax; scale them before it"),
    Mistake({"values": "keys"}, "the weights are multiplied by the keys; multiply them by the values"),
    Mistake({"masking": "ignored"}, "the mask changes nothing: it is accepted, but not applied to the scores"),
    Mistake(
        {"masking": "after"},
        "the mask is applied after the softmax, so rows with hidden keys sum to less than 1; mask the scores before it",
    ),
    Mistake(
        {"masking": "as zero"},
        "hidden scores become 0, and exp(0) is 1; hidden scores must become −∞ or a very negative number",
    ),
    Mistake(
        {"masking": "transposed"}, "the mask is applied with its axes swapped; its rows are queries, its columns keys"
    ),
    Mistake(
        {"split": "viewed"},
        "heads are split by view(B, H, T, d_k), which cuts the sequence into pieces; "
        "use view(B, T, H, d_k).transpose(1, 2)",
    ),
    Mistake(
        {"merge": "viewed"},
        "heads are joined by view without transpose(1, 2), which mixes up positions; "
        "use transpose(1, 2).contiguous().view(B, T, d_model)",
    ),
    Mistake({"projected": False}, "the output projection is missing: the joined heads are returned as they are"),
)


def combined(fields: Iterable[str], base: Formula = RIGHT) -> Iterator[tuple[Formula, tuple[Mistake, ...]]]:
    """Yield the formula without a mistake, with each single mistake in these fields, and with each two of them."""
    known = [each for each in MISTAKES if each.change.keys() <= set(fields)]
    yield base, ()
    for mistake in known:
        yield replace(base, **mistake.change), (mistake,)
    for first, second in combinations(known, 2):
        if not first.change.keys() & second.change.keys():
            yield replace(base, **first.change, **second.change), (first, second)


def recognized(
    outputs: torch.Tensor,
    compute: Callable[[Formula], torch.Tensor],
    fields: Iterable[str],
    base: Formula = RIGHT,
) -> tuple[Formula, tuple[Mistake, ...]] | None:
    """Return the formula that gives these outputs, with its mistakes, the fewest first; None if no known one does."""
    for formula, mistakes in combined(fields, base):
        if is_close(outputs, compute(formula)):
            return formula, mistakes
    return None


def is_close(outputs: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether outputs equal the expected ones of the same shape up to rounding in float32."""
    return outputs.shape == expected.shape and difference(outputs, expected) <= TOLERANCE * max(1.0, size(expected))


def difference(outputs: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference; infinity if an output is NaN or infinite."""
    largest = (outputs.detach() - expected.detach()).abs().max().item()
    return largest if math.isfinite(largest) else math.inf


def size(tensor: torch.Tensor) -> float:
    """Return the largest absolute number of a tensor."""
    return tensor.detach().abs().max().item()


def compared(outputs: torch.Tensor, expected: torch.Tensor, axes: tuple[str, ...]) -> str:
    """Return how large the difference of two tensors is and where it begins, as a clause.

    Args:
        outputs, expected: float, of one shape.
        axes: names of the axes before the last, such as ("batch", "query").
    """
    differs = ~((outputs.detach() - expected.detach()).abs() <= TOLERANCE * max(1.0, size(expected)))
    first = differs.any(dim=-1).nonzero()[0].tolist()
    where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, first, strict=True))
    largest = difference(outputs, expected)
    amount = "outputs that are NaN or infinite" if math.isinf(largest) else f"up to {largest:.2g}"
    return f"{amount}, the first at {where}"
