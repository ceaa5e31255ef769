"""Checks of the paths through any model: around its sublayers, and between the matrices of a feed-forward network."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import torch

from core.interpret.any_module.graph_calls import GraphCall, GraphCalls, Paths
from core.teaching.doctor.any_model import AnyModel
from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.doctor.finding import Finding
from core.teaching.doctor.language_model import LanguageModel

RESIDUALS, ACTIVATION = "residual connections", "activation"
ATTENTION = ("attention", "softmax")


def check_residual_paths(subject: AnyModel) -> Finding:
    """From the embeddings, a path to the logits goes around every sublayer.

    Raises:
        NotCheckableError: no embedding of the ids and no attention was seen.
    """
    src, tgt_in = _of_two_lengths(*subject.few)
    seen, logits = _called(subject, src, tgt_in)
    checked: dict[GraphCall, str] = {}  # their names
    without: dict[int, str] = {}  # names by position in ``checked``
    for side, ids, read in _sides(subject, src, tgt_in):
        start = seen.embedding_of(ids)
        paths = None if start is None else Paths(logits, start)
        if paths is None or not paths.exist or logits.shape[-1] in read:
            continue  # with as many tokens as keys, a softmax of logits looks like attention
        for name, call in _sublayers(seen.calls, side, ids.shape[1], read):
            checked.setdefault(call, name)
            if paths.all_pass(call):
                without.setdefault([*checked].index(call), name)
    if not checked:
        raise NotCheckableError("no attention between embeddings of the ids and the logits was seen.")
    if not without:
        counts = Counter(name.rsplit(" ", 1)[0] for name in checked.values())
        listed = ", ".join(f"{kind} ({count})" for kind, count in counts.items())
        return Finding(RESIDUALS, "green", f"A path to the logits goes around every sublayer seen: {listed}.", 0.0)
    first = without[min(without)]
    sentence = (
        f"Every path from the embeddings to the logits goes through {first}: its input is not added to its output."
    )
    more = f" So it is in {len(without)} of {len(checked)} sublayers." if len(without) > 1 else ""
    return Finding(RESIDUALS, "amber", sentence + more, float(len(without)))


def check_activation(subject: AnyModel) -> Finding:
    """Something lies between two matrices of which the first has more outputs than either side of both.

    Raises:
        NotCheckableError: there are no such matrices.
    """
    seen, _ = _called(subject, *subject.few)
    pairs = [(one, other) for one, other in pairwise(seen.calls) if _is_feed_forward(one, other)]
    if not pairs:
        raise NotCheckableError("no feed-forward network of two matrices was seen.")
    linear = [one.sizes for one, other in pairs if other.is_of_matrix]
    if not linear:
        return Finding(ACTIVATION, "green", f"Every feed-forward network has an activation ({len(pairs)} seen).", 0.0)
    inputs, hidden = linear[0]
    sentence = (
        f"In {len(linear)} of {len(pairs)} feed-forward networks nothing lies between the matrices {inputs} → {hidden} "
        f"and {hidden} → {inputs}: without an activation they are one matrix."
    )
    return Finding(ACTIVATION, "amber", sentence, float(len(linear)))


def _called(subject: AnyModel, src: torch.Tensor, tgt_in: torch.Tensor) -> tuple[GraphCalls, torch.Tensor]:
    with torch.enable_grad(), GraphCalls() as seen:
        logits = subject.differentiable_logits(src, tgt_in)
    if logits.grad_fn is None:
        raise NotCheckableError("the logits have no gradient.")
    return seen, logits


def _of_two_lengths(src: torch.Tensor, tgt_in: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sources and decoder inputs of different lengths, which tell the attentions apart."""
    return src, tgt_in[:, :-1] if src.shape[1] == tgt_in.shape[1] > 1 else tgt_in


def _sides(subject: AnyModel, src: torch.Tensor, tgt_in: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, set[int]]]:
    """Yield the name of each side, its ids, and the numbers of keys that its queries read.

    The decoder is first: what all paths of the decoder go through, those of the encoder go through as well.
    """
    if isinstance(subject, LanguageModel):
        ids = torch.cat([src, tgt_in], dim=1)
        yield "", ids, {ids.shape[1]}
    else:
        yield "the decoder's ", tgt_in, {src.shape[1], tgt_in.shape[1]}
        yield "the encoder's ", src, {src.shape[1]}


def _sublayers(calls: list[GraphCall], side: str, queries: int, keys: set[int]) -> list[tuple[str, GraphCall]]:
    """Return the attentions of a side and, of both sides, the other sublayers of a model with attention.

    These are the second matrices of feed-forward networks, if the side has attention, and convolutions.
    """
    attention = [
        each for each in calls if each.kind in ATTENTION and each.sizes[0] == queries and each.sizes[1] in keys
    ]
    feed = [other for one, other in pairwise(calls) if _is_feed_forward(one, other)] if attention else []
    has_attention = any(each.kind in ATTENTION for each in calls)
    convolutions = [each for each in calls if each.kind == "convolution" and each.sizes[0] == each.sizes[1]]
    named = {
        f"{side}attention": attention,
        "feed-forward network": feed,
        "convolution": convolutions if has_attention else [],
    }
    return [(f"{name} {at}", each) for name, found in named.items() for at, each in enumerate(found, 1)]


def _is_feed_forward(one: GraphCall, other: GraphCall) -> bool:
    """Whether two calls that follow each other are a wide matrix and one back to the same size."""
    if (one.kind, other.kind) != ("matrix", "matrix"):
        return False
    (inputs, hidden), (read, outputs) = one.sizes, other.sizes
    return hidden == read and inputs == outputs < hidden
