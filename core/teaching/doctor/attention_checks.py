"""Checks of attention: every weight worked out again from the module's own projections, and compared."""

import math

import torch
from torch import nn

from core.models import AttentionMaps
from core.models.attention import MultiHeadAttention
from core.models.embeddings import Embedding
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.subject import AttentionCall

EXACT = 1e-3
LEAST_WEIGHT = 1e-6  # below it, a logarithm says little
SAME_HEADS = 1e-3  # begun alike, heads drift apart by rounding, to 1e-4 in 400 updates; others are 0.03 apart or more
UNIFORM, SATURATED = 0.99, 0.35  # entropy of a model's heads, of the largest there can be


def row_sums(calls: list[AttentionCall]) -> Finding:
    """Every query's weights sum to 1 over the keys."""
    name = "rows of attention"
    if not calls:
        return Finding(name, "green", "It has no attention.")
    off = max(_off_one(call, dim=-1) for call in calls)
    if off < EXACT:
        return Finding(name, "green", "Every row of attention sums to 1.", off)
    sentence = f"Rows of attention do not sum to 1: one is off by {off:.2f}"
    if all(call.weights.ndim == 4 and _off_one(call, dim=-2) < EXACT for call in calls):
        sentence += ". The columns do: the softmax runs over the queries."
        return Finding(name, "red", sentence, off, "softmax-over-queries")
    return Finding(name, "red", sentence + ".", off)


def score_scale(calls: list[AttentionCall]) -> Finding:
    """Scores are divided by √d_k: found from how fast the weights' logarithms grow with Q Kᵀ."""
    name = "scale of the scores"
    multi_head = [call for call in calls if isinstance(call.module, MultiHeadAttention)]
    fits = [fit for fit in map(_slope, multi_head) if fit is not None]
    if not fits:
        return Finding(name, "green", "It has no scaled dot-product attention.")
    d_k = multi_head[0].key.shape[-1]
    if min(agreement for _, agreement in fits) < 0.99:
        return Finding(name, "amber", "The weights are not the softmax of any multiple of Q Kᵀ.")
    divisor = 1 / (sum(slope for slope, _ in fits) / len(fits))
    right = math.sqrt(d_k)
    if abs(divisor / right - 1) < 0.05:
        sentence = f"Scores are divided by {divisor:.2f}, which is √d_k."
        return Finding(name, "green", sentence, divisor)
    bug = "no-score-scaling" if abs(divisor - 1) < 0.05 else None
    return Finding(name, "red", f"Scores are divided by {divisor:.2f}, not by √d_k = {right:.2f}.", divisor, bug)


def picture(maps: AttentionMaps, calls: list[AttentionCall]) -> Finding:
    """The maps that are reported explain the heads' outputs: weights times values have the outputs' norm."""
    name = "what the maps show"
    for block in ("cross", "encoder"):
        off = max((_unexplained(call) for call in calls if call.block == block), default=0.0)
        if off < EXACT:
            continue
        sentence = f"The map of {block}-attention does not explain its output: it is off by up to {off:.2f}"
        if block == "cross" and maps.decoder is not None and _equal_where_both(maps.cross, maps.decoder):
            sentence += ": it is the map of the decoder's self-attention."
            return Finding(name, "red", sentence, off, "self-plotted-as-cross")
        return Finding(name, "red", sentence + ".", off)
    return Finding(name, "green", "Every map explains the output of its attention.", 0.0)


def alike_heads(calls: list[AttentionCall]) -> Finding:
    """The heads of a layer differ."""
    name = "heads of a layer"
    several = [call for call in calls if call.weights.ndim == 4 and call.weights.shape[1] > 1]
    if not several:
        return Finding(name, "green", "It has no layer of several heads.")
    apart = {call.name: (call.weights - call.weights[:, :1]).abs().amax().item() for call in several}
    least = min(apart.values())
    if least > SAME_HEADS:
        return Finding(name, "green", "The heads of every layer look at different places.", least)
    alike = [layer for layer, distance in apart.items() if distance <= SAME_HEADS]
    sentence = f"All heads are the same in {len(alike)} of {len(apart)} attentions, to {max(apart.values()):.0e}"
    if len(alike) == len(apart):
        return Finding(name, "red", sentence + ": they began alike, so they learn alike.", least, "heads-alike")
    return Finding(name, "amber", sentence + ".", least)


def entropy(calls: list[AttentionCall], *, is_trained: bool) -> Finding:
    """How evenly heads look around: spread out before training, neither uniform nor all on one key behind it."""
    name = "entropy of attention"
    heads = torch.cat([_entropies(call) for call in calls]) if calls else torch.empty(0)
    if not len(heads):
        return Finding(name, "green", "It has no attention.")
    mean, least, most = heads.mean().item(), heads.min().item(), heads.max().item()
    sentence = f"The heads' entropies are from {least:.2f} to {most:.2f} of the largest there can be."
    if not is_trained and mean < SATURATED:
        return Finding(name, "amber", sentence + " Before training they should be spread out.", mean)
    if is_trained and least > UNIFORM:
        return Finding(name, "amber", sentence + " All look everywhere: none has learned where to look.", mean)
    return Finding(name, "green", sentence, mean)


@torch.no_grad()
def embedding_scale(model: nn.Module) -> Finding:
    """Embeddings are multiplied by √d_model: the distance of two, before and behind."""
    name = "scale of the embeddings"
    factors = []
    for each in (module for module in model.modules() if isinstance(module, Embedding)):
        size, width = each.tokens.weight.shape
        pair = torch.tensor([[size - 1], [size - 2]], device=each.tokens.weight.device)
        one, other = each(pair)[:, 0]
        raw = each.tokens.weight[size - 1] - each.tokens.weight[size - 2]
        factors.append(((one - other).norm() / raw.norm()).item() / math.sqrt(width))
        right = math.sqrt(width)
    worst = max(factors, key=lambda factor: abs(factor - 1))
    found = worst * right
    if abs(worst - 1) < 0.05:
        return Finding(name, "green", f"Embeddings are multiplied by {found:.2f}, which is √d_model.", found)
    bug = "no-embedding-scaling" if abs(found - 1) < 0.05 else None
    sentence = f"Embeddings are multiplied by {found:.2f}, not by √d_model = {right:.2f}: positions drown them."
    return Finding(name, "red", sentence, found, bug)


def _off_one(call: AttentionCall, *, dim: int) -> float:
    """Return how far the largest or smallest sum along a dimension is from 1, where anything may be seen."""
    sums, used = call.weights.sum(dim=dim), call.seen.any(dim=dim)
    return (sums - 1).abs()[used].max().item() if used.any() else 0.0


def _slope(call: AttentionCall) -> tuple[float, float] | None:
    """Return how fast log weights grow with Q Kᵀ in a row, and how well a line fits, 0-1; None where all is even."""
    scores = call.query @ call.key.transpose(-2, -1)
    used = call.seen & (call.weights > LEAST_WEIGHT)
    logs = call.weights.clamp(min=LEAST_WEIGHT).log()
    logs = logs if call.bias is None else logs - call.bias
    scores, logs = (_centred(each, used) for each in (scores, logs))
    spread, other = (each.square().sum().item() for each in (scores, logs))
    product = (scores * logs).sum().item()
    if spread < 1e-9 or other < 1e-9:
        return None
    return product / spread, product / math.sqrt(spread * other)


def _centred(values: torch.Tensor, used: torch.Tensor) -> torch.Tensor:
    """Take the mean of each row's used values from them, and put zero for the others."""
    kept = values * used
    return (kept - kept.sum(dim=-1, keepdim=True) / used.sum(dim=-1, keepdim=True).clamp(min=1)) * used


def _unexplained(call: AttentionCall) -> float:
    """Return how far the norms of weights times values are from those of the heads' outputs, relative to the largest.

    Norms, because relative positions may have rotated the outputs.
    """
    expected, given = ((call.weights @ call.value).norm(dim=-1), call.output.norm(dim=-1))
    return ((expected - given).abs().max() / given.max().clamp(min=1e-12)).item()


def _equal_where_both(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape[:4] != other.shape[:4]:
        return False
    width = min(one.shape[-1], other.shape[-1])
    return torch.allclose(one[..., :width], other[..., :width], atol=EXACT)


def _entropies(call: AttentionCall) -> torch.Tensor:
    """Return the mean entropy of each head's rows that see two keys or more, of the largest there can be."""
    weights, seen = call.weights, call.seen
    keys = seen.sum(dim=-1)
    share = torch.special.entr(weights.clamp(0, 1)).sum(dim=-1) / keys.clamp(min=2).log()
    used = keys > 1
    return (share * used).sum(dim=(0, 2)) / used.sum(dim=(0, 2)).clamp(min=1)
