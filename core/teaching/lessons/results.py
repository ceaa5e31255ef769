"""Train a lesson's correct and broken run, and measure both; the results are small enough to ship."""

import math
import time
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

import torch

from core.config import Preset
from core.evaluation.accuracy import evaluate
from core.evaluation.outputs import exact_match_unpadded
from core.evaluation.passes import evaluation_mode
from core.interpret.inspection import inspect, label_source
from core.models import forward_with_attention
from core.models.seq2seq import BLOCKS
from core.tasks import build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.teaching.doctor import examine_state
from core.teaching.lessons.lesson import Lesson
from core.text.vocab import PAD, PAD_ID
from core.training.history import History
from core.training.loop import EndEvent, StepEvent, train
from core.training.state import TrainingState

NUM_TESTED = 500
MAX_POINTS = 80  # of a curve
SHOWN_SYMBOLS = 3  # in the input with shown attention, which is short, so that its source is padded
Side = dict[str, Any]
OnStep = Callable[[str, int, int], None]  # called with side, step and number of steps


def measure_pair(lesson: Lesson, *, on_step: OnStep, known: dict[Any, Side] | None = None) -> dict[str, Any]:
    """Train the correct and the broken model, on the same data from the same seed, and measure both.

    Args:
        lesson: with the two presets.
        on_step: called after every update.
        known: earlier measurements of sides, by their settings; lessons that share a correct run train it once.
    """
    known = {} if known is None else known
    sides = {}
    for side, preset in (("right", lesson.right), ("broken", lesson.broken)):
        key = (preset.task, preset.model, preset.training, preset.bug)
        if key not in known:
            known[key] = measure_side(preset, on_step=partial(on_step, side))
        sides[side] = known[key]
    return {"lesson": lesson.name, "seconds": round(sum(each["seconds"] for each in sides.values()), 1), **sides}


def measure_side(preset: Preset, *, on_step: Callable[[int, int], None]) -> Side:
    """Train one preset to its end; return metrics, curves, attention on one input and the doctor's findings."""
    started = time.perf_counter()
    state, history = new_state(preset), History()
    for event in train(state):
        if isinstance(event, EndEvent):
            break
        history.add(event)
        if isinstance(event, StepEvent):
            on_step(event.step, preset.training.steps)
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
    """Return how the training ended, and the model's results on test inputs of the task without the bug."""
    evaluations, task = history.evaluations(), build_task(state.preset.task)
    pairs = fixed_pairs(task, NUM_TESTED, split="test")
    evaluation, losses = evaluate(state.model, pairs), history.points()["loss"]
    solved = [step for step, exact in zip(evaluations["step"], evaluations["exact_match"], strict=True) if exact >= 0.9]
    example = task.examples[0]
    answer = inspect(state.model, task, example)
    return {
        "steps": state.step,
        "first_loss": _rounded(losses[0]),
        "train_loss": _rounded(fmean(losses[-50:])),
        "validation_loss": _rounded(evaluations["validation_loss"][-1]),
        "token_accuracy": evaluations["token_accuracy"][-1],
        "exact_match": _rounded(evaluation.exact_match),
        "exact_match_unpadded": _rounded(exact_match_unpadded(state.model, pairs)),
        "step_of_90_percent": solved[0] if solved else None,
        "input": example,
        "answer": " ".join(answer.output),
        "expected": " ".join(answer.expected or ()),
        "stopped": answer.stopped,
    }


@torch.no_grad()
def _attention(state: TrainingState) -> dict[str, Any]:
    """Return the attention maps of one validation input as in training: padded and teacher-forced."""
    pairs = fixed_pairs(state.task, 64, split="validation")
    row = next(index for index, source in enumerate(pairs.src) if _is_shown(source))
    pair = pairs[row : row + 1]
    _, maps = forward_with_attention(state.model, pair.src, pair.tgt_in)
    steps = int((pair.tgt_out != PAD_ID).sum())
    symbols = state.task.src_vocab.decode(pair.src[0].tolist())[1 : SHOWN_SYMBOLS + 1]
    source = [*label_source(symbols), *[PAD] * (pair.src.shape[1] - SHOWN_SYMBOLS - 2)]
    produced, read = (_tokens(state, ids[0]) for ids in (pair.tgt_out, pair.tgt_in))
    rows = [{"produced": one, "read": other} for one, other in zip(produced[:steps], read[:steps], strict=True)]
    columns = {"cross": source, "decoder": read, "encoder": source}
    attention: dict[str, Any] = {}
    for block in BLOCKS:
        weights = getattr(maps, block)
        if weights is None:
            continue
        of_block = [{"token": each} for each in source] if block == "encoder" else rows
        attention[block] = {
            "rows": of_block,
            "columns": columns[block],
            "maps": [
                [[[round(cell, 2) for cell in line] for line in head[: len(of_block)]] for head in layer]
                for layer in weights[:, 0].tolist()
            ],
        }
    return attention


def _tokens(state: TrainingState, ids: torch.Tensor) -> list[str]:
    return [state.task.tgt_vocab.tokens[each] for each in ids.tolist()]


def _is_shown(source: torch.Tensor) -> bool:
    """Return whether a source (S,) has ``SHOWN_SYMBOLS`` symbols, all different."""
    symbols = source[source != PAD_ID][1:-1].tolist()
    return len(symbols) == SHOWN_SYMBOLS == len(set(symbols))


def _thinned(points: dict[str, list]) -> dict[str, list]:
    """Return loss and gradient norm averaged over intervals of steps, at most ``MAX_POINTS`` of them."""
    steps = points["step"]
    width = max(1, math.ceil(len(steps) / MAX_POINTS))
    starts = range(0, len(steps), width)
    means = {
        name: [_rounded(fmean(points[name][start : start + width])) for start in starts]
        for name in ("loss", "gradient_norm")
    }
    return {"step": [steps[min(start + width, len(steps)) - 1] for start in starts], **means}


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
