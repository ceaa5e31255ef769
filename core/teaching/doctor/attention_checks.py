"""Checks of attention: normalization, scale, the reported maps, and the heads."""

import math
from dataclasses import replace

import torch
from torch import nn

from core.config import BugName
from core.interpret.any_module.attention_calls import AttentionCall
from core.models import AttentionMaps
from core.models.attention import MultiHeadAttention
from core.models.embeddings import Embedding
from core.teaching.doctor.finding import Finding, not_checked

UNDIVIDED = ("gpt_neo",)  # model_type of published models that do not divide scores; T5's have a bias
NO_ATTENTION = "the model has no attention that can be recorded."
TOLERANCE = 1e-3
LINEAR = 0.99  # correlation of the logarithms of weights with the products of queries and keys
WITHIN = 0.05  # of the divisor of scores
LISTED = 6  # modules in a sentence
NO_BIAS = 0.9999  # likewise, in an unknown module; T5 adds a bias to scores, and its small weights need no scaling
MIN_WEIGHT = 1e-6  # logarithms of smaller weights are inaccurate
SAME_HEADS = 5e-3  # of what weights differ from uniform; heads initialized alike drift apart to 1e-3 in 400 updates
SAME_QUERIES, UNIFORM_WITHIN = 1e-6, 1e-5  # relative to the difference from uniform weights; of weights
UNIFORM, SATURATED = 0.99, 0.35  # entropies of heads, as fractions of the maximum


def check_row_sums(calls: list[AttentionCall]) -> Finding:
    """The weights of every query sum to 1 over the keys."""
    name = "attention rows"
    if not calls:
        return not_checked(name, NO_ATTENTION)
    deviation = max(_deviation_from_one(call, dim=-1) for call in calls)
    if deviation < TOLERANCE:
        return Finding(name, "green", "Every row of attention weights sums to 1.", deviation)
    sentence = f"Rows of attention weights do not sum to 1: the largest deviation is {deviation:.2f}."
    if all(call.weights.shape[-2] > 1 and _deviation_from_one(call, dim=-2) < TOLERANCE for call in calls):
        sentence += " The columns do: the softmax is over the queries."
        return Finding(name, "red", sentence, deviation, "softmax-over-queries")
    return Finding(name, "red", sentence, deviation)


def check_score_scaling(calls: list[AttentionCall]) -> Finding:
    """Scores of every call are divided by its own √d_k: the slope of the log weights over Q Kᵀ is 1 / √d_k."""
    name = "score scaling"
    softmax = (MultiHeadAttention, nn.MultiheadAttention, type(None))  # linear attention has none
    multi_head = [call for call in calls if type(call.module) in softmax]
    traced = [call for call in multi_head if call.module is not None or call.scores is not None]
    fits = [(call, *fit) for call in traced if (fit := _fit_slope(call)) is not None]
    if not fits and not calls:
        return not_checked(name, "the model has no attention that can be recorded.")
    if not fits:
        return not_checked(
            name,
            "scores cannot be traced to products of projected queries and keys; rotary positions, a norm of queries or "
            "keys, or attention of another kind hide them.",
        )
    unseen = len(multi_head) - len(fits)
    more = f" In {unseen} of {len(multi_head)} calls of attention that could not be measured." if unseen else ""
    lowest = min(correlation for _, _, correlation in fits)
    if fits[0][0].module is None and lowest < NO_BIAS:
        return not_checked(name, "a bias is added to scores, or they hardly differ.")
    if lowest < LINEAR:
        return Finding(name, "amber", "The attention weights are not a softmax of any multiple of Q Kᵀ.")
    divided = [(call.name, 1 / slope, math.sqrt(call.d_k)) for call, slope, _ in fits]
    wrong = [each for each in divided if not _is_about(each[1], each[2])]
    if not wrong:
        _, divisor, expected = divided[0]
        if all(each[2] == expected for each in divided):
            return Finding(name, "green", f"Scores are divided by {divisor:.2f}, which is √d_k.{more}", divisor)
        sentence = "In every attention module scores are divided by its own √d_k."
        return Finding(name, "green", sentence + more, divisor)
    _, divisor, expected = wrong[0]
    if all(_is_about(each[1], each[2] ** 2) for each in wrong):
        sentence = f"Scores are divided by d_k, here {divisor:.2f}, as in µP (Yang et al. 2021), not by √d_k."
        return Finding(name, "amber", sentence + more, divisor)
    bug: BugName | None = "no-score-scaling" if all(_is_about(each[1], 1.0) for each in wrong) else None
    if len(wrong) == len(divided) and all(_is_about(each[1], divisor) and each[2] == expected for each in wrong):
        sentence = f"Scores are divided by {divisor:.2f}, not by √d_k = {expected:.2f}."
        return Finding(name, "red", sentence + more, divisor, bug)
    named = {of: f"{of} by {divisor:.2f}, not {expected:.2f}" for of, divisor, expected in wrong}
    count = len({of for of, _, _ in divided})
    sentence = f"In {len(named)} of {count} attention modules scores are not divided by √d_k: "
    sentence += "; ".join([*named.values()][:LISTED]) + ("; …" if len(named) > LISTED else "") + "."
    return Finding(name, "red", sentence + more, divisor, bug)


def check_reported_maps(maps: AttentionMaps, calls: list[AttentionCall]) -> Finding:
    """The reported attention weights times the values are the heads' outputs."""
    name = "reported attention"
    if not any(call.output is not None for call in calls):
        return not_checked(name, "no output of heads can be recorded.")
    for block in ("cross", "encoder", "decoder"):
        error = max((_output_error(call) for call in calls if call.block == block), default=0.0)
        if error < TOLERANCE:
            continue
        sentence = f"Reported {block}-attention times the values is not the heads' output: relative error {error:.2f}."
        if block == "cross" and _equal_where_both(maps.cross, maps.decoder):
            sentence += " It is the decoder's self-attention."
            return Finding(name, "red", sentence, error, "self-plotted-as-cross")
        return Finding(name, "red", sentence, error)
    return Finding(name, "green", "Reported attention times the values is the heads' output.", 0.0)


def genuine_calls(calls: list[AttentionCall]) -> list[AttentionCall]:
    """Return the calls that report the weights they used; all calls if there are none."""
    return [call for call in calls if _output_error(call) < TOLERANCE] or calls


def check_head_diversity(calls: list[AttentionCall]) -> Finding:
    """The heads of a layer differ."""
    name = "head diversity"
    several = [call for call in calls if call.weights.shape[1] > 1]
    if not several:
        return not_checked(name, "no recorded layer has several heads.")
    distances = {call.name: distance for call in several if (distance := _head_distance(call)) is not None}
    if not distances:
        return not_checked(name, "all attention is uniform, which is alike in all heads.")
    smallest = min(distances.values())
    if smallest > SAME_HEADS:
        return Finding(name, "green", "The heads of every layer attend differently.", smallest)
    identical = [layer for layer, distance in distances.items() if distance <= SAME_HEADS]
    sentence = (
        f"All heads are identical in {len(identical)} of {len(distances)} attention modules, "
        f"within {max(distances.values()):.0e}"
    )
    if len(identical) == len(distances):
        sentence += ": they were initialized identically, so they learn identically."
        return Finding(name, "red", sentence, smallest, "heads-alike")
    return Finding(name, "amber", sentence + ".", smallest)


def check_queries(calls: list[AttentionCall]) -> Finding:
    """The weights of a query differ from those of others: queries are read. Only where they see the same keys."""
    name = "attention queries"
    spreads = {each.name: spread for each in _steps_joined(calls) if (spread := _query_spread(each)) is not None}
    if not spreads:
        return not_checked(name, "no recorded attention has several queries that see the same keys, or all is uniform.")
    alike = [each for each, spread in spreads.items() if spread < SAME_QUERIES]
    if not alike:
        return Finding(name, "green", "Queries that see the same keys attend differently.", min(spreads.values()))
    sentence = (
        f"In {len(alike)} of {len(spreads)} attention modules all queries have the same weights, which are not "
        "uniform: the weights do not depend on the query."
    )
    return Finding(name, "amber", sentence, float(len(alike)))


def _steps_joined(calls: list[AttentionCall]) -> list[AttentionCall]:
    """Return the calls with those of one query that follow each other, as a recurrent decoder makes them, as one."""
    joined: list[AttentionCall] = []
    for call in calls:
        last = joined[-1] if joined else None
        sizes = (call.block, len(call.weights), call.weights.shape[1], call.weights.shape[3])
        if (
            last is not None
            and call.weights.shape[2] == 1
            and sizes == (last.block, len(last.weights), last.weights.shape[1], last.weights.shape[3])
        ):
            weights = torch.cat([last.weights, call.weights], dim=2)
            joined[-1] = replace(last, weights=weights, mask=torch.cat([last.visible, call.visible], dim=2))
        else:
            joined.append(call)
    return joined


def _query_spread(call: AttentionCall) -> float | None:
    """Return the largest difference between queries, relative to that from uniform weights; None if they are uniform.

    None as well for queries that see different keys, and for a single one.
    """
    visible = call.visible
    if call.weights.shape[2] < 2 or not torch.equal(visible, visible[:, :, :1].expand_as(visible)):
        return None
    uniform = visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)
    spread = (call.weights - uniform).abs().amax().item()
    return None if spread < UNIFORM_WITHIN else (call.weights - call.weights[:, :, :1]).abs().amax().item() / spread


def _head_distance(call: AttentionCall) -> float | None:
    """Return the largest difference between heads, relative to that from uniform weights; None if they are uniform."""
    uniform = call.visible / call.visible.sum(dim=-1, keepdim=True).clamp(min=1)
    spread = (call.weights - uniform).abs().amax().item()
    return None if spread < UNIFORM_WITHIN else (call.weights - call.weights[:, :1]).abs().amax().item() / spread


def check_entropy(calls: list[AttentionCall], *, is_trained: bool) -> Finding:
    """Attention is spread out before training, and not uniform in every head after training."""
    name = "attention entropy"
    heads = torch.cat([_head_entropies(call) for call in calls]) if calls else torch.empty(0)
    if not len(heads) or not any((call.visible.sum(dim=-1) > 1).any() for call in calls):
        return not_checked(name, NO_ATTENTION)
    mean, least, most = heads.mean().item(), heads.min().item(), heads.max().item()
    sentence = f"The entropies of the heads are between {least:.2f} and {most:.2f} of the maximum."
    if not is_trained and mean < SATURATED:
        return Finding(name, "amber", sentence + " Before training, attention should be spread out.", mean)
    if is_trained and least > UNIFORM:
        return Finding(name, "amber", sentence + " All are uniform: no head has learned where to attend.", mean)
    return Finding(name, "green", sentence, mean)


@torch.no_grad()
def check_embedding_scaling(model: nn.Module) -> Finding:
    """Embeddings are multiplied by √d_model: the distance of two of them grows by that factor."""
    name = "embedding scaling"
    if not getattr(getattr(model, "config", None), "scale_embeddings", True):
        return not_checked(name, "the model is meant not to scale embeddings (model.scale_embeddings).")
    ratios = []  # (factor / √d_model, √d_model) of each embedding
    for embedding in (module for module in model.modules() if isinstance(module, Embedding)):
        table = embedding.tokens.weight
        size, width = table.shape
        one, other = embedding(torch.tensor([[size - 1], [size - 2]], device=table.device))[:, 0]
        factor = ((one - other).norm() / (table[size - 1] - table[size - 2]).norm()).item()
        ratios.append((factor / math.sqrt(width), math.sqrt(width)))
    if not ratios:
        return not_checked(name, "the model has no embedding of the lab's kind.")
    ratio, expected = max(ratios, key=lambda each: abs(each[0] - 1))
    factor = ratio * expected
    if abs(ratio - 1) < 0.05:
        return Finding(name, "green", f"Embeddings are multiplied by {factor:.2f}, which is √d_model.", factor)
    bug: BugName | None = "no-embedding-scaling" if abs(factor - 1) < 0.05 else None
    sentence = (
        f"Embeddings are multiplied by {factor:.2f}, not by √d_model = {expected:.2f}: "
        "the positional encodings dominate them."
    )
    return Finding(name, "red", sentence, factor, bug)


def _is_about(divisor: float, expected: float) -> bool:
    return abs(divisor / expected - 1) < WITHIN


def _deviation_from_one(call: AttentionCall, *, dim: int) -> float:
    """Return the largest deviation from 1 of the sums along a dimension, where any weight is visible."""
    sums, is_used = call.weights.sum(dim=dim), call.visible.any(dim=dim)
    return (sums - 1).abs()[is_used].max().item() if is_used.any() else 0.0


def _fit_slope(call: AttentionCall) -> tuple[float, float] | None:
    """Fit a line to log weights over Q Kᵀ; return slope and correlation, or None if one of them does not vary."""
    scores = call.products
    is_used = call.visible & (call.weights > MIN_WEIGHT)
    logs = call.weights.clamp(min=MIN_WEIGHT).log()
    logs = logs if call.bias is None else logs - call.bias
    scores, logs = (_centered(each, is_used) for each in (scores, logs))
    score_variance, log_variance = (each.square().sum().item() for each in (scores, logs))
    covariance = (scores * logs).sum().item()
    if score_variance < 1e-9 or log_variance < 1e-9:
        return None
    return covariance / score_variance, covariance / math.sqrt(score_variance * log_variance)


def _centered(values: torch.Tensor, is_used: torch.Tensor) -> torch.Tensor:
    """Subtract the mean of each row's used values from them, and set the others to zero."""
    masked = values * is_used
    return (masked - masked.sum(dim=-1, keepdim=True) / is_used.sum(dim=-1, keepdim=True).clamp(min=1)) * is_used


def _output_error(call: AttentionCall) -> float:
    """Return the largest difference between weights times values and the heads' outputs, relative to the largest one.

    It compares norms, because relative positions may have rotated the outputs. 0 if the outputs cannot be read.
    """
    if call.output is None or call.value is None:
        return 0.0
    expected, actual = (call.weights @ call.value).norm(dim=-1), call.output.norm(dim=-1)
    return ((expected - actual).abs().max() / actual.max().clamp(min=1e-12)).item()


def _equal_where_both(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Return whether maps (L, B, H, T, K) are equal on their common keys."""
    if one is None or other is None or one.shape[:4] != other.shape[:4]:
        return False
    width = min(one.shape[-1], other.shape[-1])
    return torch.allclose(one[..., :width], other[..., :width], atol=TOLERANCE)


def _head_entropies(call: AttentionCall) -> torch.Tensor:
    """Return each head's mean entropy, (H,), over rows with at least two visible keys, as a fraction of the maximum."""
    num_keys = call.visible.sum(dim=-1)
    fractions = torch.special.entr(call.weights.clamp(0, 1)).sum(dim=-1) / num_keys.clamp(min=2).log()
    is_used = num_keys > 1
    return (fractions * is_used).sum(dim=(0, 2)) / is_used.sum(dim=(0, 2)).clamp(min=1)
