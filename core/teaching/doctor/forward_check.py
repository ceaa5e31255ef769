"""The check of the forward pass: logits are finite, and two calls with the same input agree."""

import random
from collections.abc import Callable, Mapping

import numpy as np
import torch

from core.config.counting import percent
from core.interpret.any_module.function_calls import FunctionCalls
from core.teaching.doctor.black_box import BlackBox, how_far, largest_change
from core.teaching.doctor.finding import FORWARD, Finding

NOT_FINITE = "logits are not finite."
NOT_REPEATABLE = "two calls with the same input differ."
SEEDS: dict[str, Callable[[int], object]] = {
    "torch's random generator": torch.manual_seed,
    "Python's random": random.seed,
    "NumPy's random generator": np.random.seed,
}


def check_forward(subject: BlackBox) -> tuple[Finding, str]:
    """Logits are finite, and the same for the same input; also return why they cannot be compared, "" if they can."""
    src, tgt_in = subject.few
    with FunctionCalls(src, tgt_in) as calls:
        logits = subject.logits(src, tgt_in)
    again, is_real = subject.logits(src, tgt_in), subject.is_real
    is_bad = (logits.isnan() | (logits == torch.inf)).any(dim=-1)
    if is_bad.any():
        fraction = is_bad.float().mean().item()
        sentence = f"Logits are NaN or infinite at {percent(fraction, 0)} of the positions"
        only_pad = not (is_bad & is_real).any()
        sentence += ", all of them of PAD." if only_pad else "."
        return Finding(FORWARD, "red", sentence, fraction), "" if only_pad else NOT_FINITE
    change = largest_change(logits, again, is_real)
    if not subject.rounding.explains(change):
        sentence = f"In evaluation mode the logits of two calls with the same input differ{how_far(change)}"
        return Finding(FORWARD, "red", f"{sentence}: {_randomness(subject, calls)}", change), NOT_REPEATABLE
    return Finding(FORWARD, "green", f"Logits have the shape {tuple(logits.shape)} and are finite.", change), ""


def of_no_row(error: IndexError, sides: Mapping[str, torch.Tensor]) -> str:
    """Return why a table has no row for an id, as a sentence; ``sides`` are the ids (B, T) int64 by their argument."""
    cause = f"IndexError: {' '.join(str(error).split())[:300]}"
    for name, ids in sides.items():
        if (least := int(ids.min())) < 0:
            return f"{name} has {least}, which is no id: pass it padded with the PAD that the model reads ({cause})."
    sizes = [f"{name} has ids up to {int(ids.max())} in {ids.shape[1]} columns" for name, ids in sides.items()]
    return f"{cause}; {' and '.join(sizes)}."


def _randomness(subject: BlackBox, calls: FunctionCalls) -> str:
    """Return where the difference of two calls comes from, as the end of a sentence."""
    if calls.dropout:
        return f"dropout is active, {calls.dropout[0]} is called."
    for name in SEEDS:
        if _agrees(subject, [name]):
            return f"the model draws from {name}, since with the same seed they agree."
    if _agrees(subject, list(SEEDS)):
        return "the model draws from several random generators, since with the same seeds they agree."
    return "the model keeps a state between calls or has a generator of its own, since seeds change nothing."


def _agrees(subject: BlackBox, generators: list[str]) -> bool:
    """Whether two calls agree if these generators are in the same state before each."""
    results: list[torch.Tensor] = []
    for _ in range(2):
        for name in generators:
            SEEDS[name](0)
        results.append(subject.logits(*subject.few))
    return subject.rounding.explains(largest_change(results[0], results[1], subject.is_real))
