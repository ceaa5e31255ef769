"""Train a lesson's pair and keep what is to be seen of it, small enough to ship."""

import math
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch

from core.config import Preset
from core.evaluation.accuracy import evaluate, evaluation_mode, exact_match_unpadded
from core.interpret.inspection import inspect, label_source
from core.models import forward_with_attention
from core.models.heads import BLOCKS
from core.tasks import build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.teaching.doctor import examine_state
from core.teaching.lessons.lesson import Lesson
from core.text.vocab import PAD, PAD_ID
from core.training.history import History
from core.training.loop import EndEvent, StepEvent, train
from core.training.state import TrainingState

TESTED = 500
POINTS = 80  # of a curve
SHOWN_SYMBOLS = 3  # in the input whose attention is shown: short, so that there is PAD behind it
Side = dict[str, Any]
Watch = Callable[[str, int, int], None]  # which side, step, of how many


def measure_pair(lesson: Lesson, *, watch: Watch, known: dict[Any, Side] | None = None) -> dict[str, Any]:
    """Train the right and the broken model, on the same data from the same seed, and measure both.

    Args:
        watch: told of every step.
        known: sides measured before, by what they were trained with; lessons that share a right one train it once.
    """
    known = {} if known is None else known
    sides = {}
    for side, preset in (("right", lesson.right), ("broken", lesson.broken)):
        key = (preset.task, preset.model, preset.training, preset.bug)
        if key not in known:
            known[key] = measure_side(preset, watch=lambda step, steps, side=side: watch(side, step, steps))
        sides[side] = known[key]
    return {"lesson": lesson.name, "seconds": round(sum(each["seconds"] for each in sides.values()), 1), **sides}


def measure_side(preset: Preset, *, watch: Callable[[int, int], None]) -> Side:
    """Train one preset to its end and return figures, curves, attention of one input and the doctor's findings."""
    started = time.perf_counter()
    state, history = new_state(preset), History(preset.training.steps)
    for event in train(state):
        if isinstance(event, EndEvent):
            break
        history.add(event)
        if isinstance(event, StepEvent):
            watch(event.step, preset.training.steps)
    with evaluation_mode(state.model):
        return {
            "preset": preset.name,
            "bug": preset.bug,
            "figures": _figures(state, history),
            "curve": _thinned(history.points()),
            "evaluations": history.evaluations(),
            "attention": _attention(state),
            "doctor": examine_state(preset.name, state, history).as_data(),
            "seconds": round(time.perf_counter() - started, 1),
        }


def _figures(state: TrainingState, history: History) -> dict[str, Any]:
    """Return how the training ended, and how good the model is on test inputs of the unbroken task."""
    seen, task = history.evaluations(), build_task(state.preset.task)
    pairs = fixed_pairs(task, TESTED, split="test")
    found, losses = evaluate(state.model, pairs), history.points()["loss"]
    learned = [step for step, share in zip(seen["step"], seen["exact_match"], strict=True) if share >= 0.9]
    example = task.examples[0]
    answer = inspect(state.model, task, example)
    return {
        "steps": state.step,
        "first_loss": _rounded(losses[0]),
        "train_loss": _rounded(fmean(losses[-50:])),
        "validation_loss": _rounded(seen["validation_loss"][-1]),
        "token_accuracy": seen["token_accuracy"][-1],
        "exact_match": _rounded(found.exact_match),
        "exact_match_unpadded": _rounded(exact_match_unpadded(state.model, pairs)),
        "step_of_90_percent": learned[0] if learned else None,
        "input": example,
        "answer": " ".join(answer.output),
        "expected": " ".join(answer.expected),
        "stopped": answer.stopped,
    }


@torch.no_grad()
def _attention(state: TrainingState) -> dict[str, Any]:
    """Return the maps of one validation input as training sees it: padded, and teacher-forced."""
    pairs = fixed_pairs(state.task, 64, split="validation")
    row = next(place for place, source in enumerate(pairs.src) if _is_shown(source))
    pair = pairs[row : row + 1]
    _, maps = forward_with_attention(state.model, pair.src, pair.tgt_in)
    steps = int((pair.tgt_out != PAD_ID).sum())
    source = state.task.src_vocab.decode(pair.src[0].tolist())
    source = [*label_source(source[1 : SHOWN_SYMBOLS + 1]), *[PAD] * (pair.src.shape[1] - SHOWN_SYMBOLS - 2)]
    produced, read = (_named(state, ids[0]) for ids in (pair.tgt_out, pair.tgt_in))
    rows = [{"produced": one, "read": other} for one, other in zip(produced[:steps], read[:steps], strict=True)]
    columns = {"cross": source, "decoder": read, "encoder": source}
    shown = {}
    for block in BLOCKS:
        weights = getattr(maps, block)
        if weights is None:
            continue
        of_block = [{"token": each} for each in source] if block == "encoder" else rows
        shown[block] = {
            "rows": of_block,
            "columns": columns[block],
            "maps": [
                [[[round(cell, 2) for cell in line] for line in head[: len(of_block)]] for head in layer]
                for layer in weights[:, 0].tolist()
            ],
        }
    return shown


def _named(state: TrainingState, ids: torch.Tensor) -> list[str]:
    return [state.task.tgt_vocab.tokens[each] for each in ids.tolist()]


def _is_shown(source: torch.Tensor) -> bool:
    """Tell whether a source (S,) has as many symbols as are shown, and all of them different."""
    symbols = source[source != PAD_ID][1:-1].tolist()
    return len(symbols) == SHOWN_SYMBOLS == len(set(symbols))


def _thinned(points: dict[str, list]) -> dict[str, list]:
    """Return means of loss and gradient norm over stretches of steps, at most ``POINTS`` of them."""
    steps = points["step"]
    width = max(1, math.ceil(len(steps) / POINTS))
    starts = range(0, len(steps), width)
    means = {
        name: [_rounded(fmean(points[name][start : start + width])) for start in starts]
        for name in ("loss", "gradient_norm")
    }
    return {"step": [steps[min(start + width, len(steps)) - 1] for start in starts], **means}


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
