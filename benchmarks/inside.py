"""``bench inside``: time of the computations when something is opened on the page's tab Look inside."""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.interleaved_timing import time_interleaved
from core.config import load_preset
from core.generation import generate
from core.interpret.attribution.activation_patching import activation_patching
from core.interpret.attribution.corrupted_input import corrupt
from core.interpret.attribution.decoder_lens import decoder_lens
from core.interpret.attribution.direct_logit_attribution import direct_logit_attribution
from core.interpret.attribution.input_gradients import gradient_times_input, integrated_gradients, saliency
from core.interpret.attribution.logit_lens import logit_lens
from core.interpret.attribution.occlusion import occlusion
from core.interpret.attribution.prediction import Prediction, prediction_at
from core.interpret.attribution.value_zeroing import value_zeroing
from core.interpret.cell import cell_arithmetic
from core.interpret.parts import model_parts, part_vectors
from core.models import Seq2Seq, build_model
from core.runs import DEFAULT_ROOT
from core.runs.load import load_run
from core.tasks import Task, build_task
from core.text.vocab import BOS_ID, EOS_ID

SHIPPED = "digits-reversal-shipped"
UNTRAINED = "g2p-english"  # its weights do not change the time; its answer is cut to the input's length
ROUNDS = 7
LIMITS = {SHIPPED: 0.3, UNTRAINED: 2.0}  # seconds, each method
CELL_LIMIT = 0.05


@dataclass(frozen=True)
class Opened:
    """Time to compute one thing, for one input of one model.

    Attributes:
        seconds, worst: median and largest of ``ROUNDS``, on one thread.
        limit: how long it may take.
    """

    model: str
    name: str
    seconds: float
    worst: float
    limit: float


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print a table."""
    print(f"what Look inside computes, on the CPU, 1 thread, medians of {ROUNDS} rounds (worst)")
    shipped = load_run(DEFAULT_ROOT / SHIPPED)
    opened = measure(SHIPPED, shipped.model, shipped.task)
    preset = load_preset(UNTRAINED)
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator().manual_seed(0)).eval()
    opened += measure(UNTRAINED, model, task)
    for each in opened:
        late = "" if each.seconds <= each.limit else f"  more than {1000 * each.limit:.0f} ms"
        print(f"  {each.model:26}{each.name:34}{1000 * each.seconds:>7.0f} ms ({1000 * each.worst:.0f}){late}")
    return {"opened": [asdict(each) for each in opened]}


def measure(name: str, model: Seq2Seq, task: Task) -> list[Opened]:
    """Open everything for the task's first example."""
    symbols = task.tokenize(task.examples[0])
    src = torch.tensor([[BOS_ID, *task.src_vocab.encode(symbols), EOS_ID]])
    tokens = generate(model, src, max_steps=src.shape[1]).tokens
    answer = [token for token in task.tgt_vocab.decode(tokens[0].tolist()) if token in task.tgt_vocab.symbols]
    prediction = prediction_at(model, task, symbols, step=len(answer) // 2, answer=answer)
    foil = next(token for token in task.tgt_vocab.symbols if token != prediction.target_token)
    compared = prediction_at(model, task, symbols, step=prediction.step, foil=foil, answer=answer)
    corrupted = _corrupted(model, task, compared)
    head = model.heads[-1]
    parts = [part.name for part in model_parts(model) if part.kind != "attention"]
    timed: dict[str, Callable[[], object]] = {
        "a cell's arithmetic": lambda: cell_arithmetic(model, src, tokens, head, 1, 1),
        **{f"part {part}": lambda part=part: part_vectors(model, src, tokens, part) for part in parts},  # type: ignore[misc]
        "direct logit attribution": lambda: direct_logit_attribution(model, prediction),
        "logit lens and DecoderLens": lambda: (
            logit_lens(model, task, prediction),
            decoder_lens(model, task, prediction),
        ),
        "attributions to tokens": lambda: (
            integrated_gradients(model, prediction),
            occlusion(model, prediction),
            gradient_times_input(model, prediction),
            saliency(model, prediction),
            value_zeroing(model, prediction),
        ),
        "activation patching": lambda: activation_patching(model, task, compared, corrupted=corrupted),
    }
    seconds = dict(zip(timed, time_interleaved(list(timed.values()), rounds=ROUNDS), strict=True))
    slowest = max((key for key in seconds if key.startswith("part ")), key=lambda key: median(seconds[key]))
    shown = [key for key in seconds if not key.startswith("part ") or key == slowest]
    return [
        Opened(
            name,
            f"slowest {key}" if key == slowest else key,
            median(seconds[key]),
            max(seconds[key]),
            CELL_LIMIT if key.startswith("a cell") and name == SHIPPED else LIMITS[name],
        )
        for key in shown
    ]


def _corrupted(model: Seq2Seq, task: Task, prediction: Prediction) -> tuple[str, ...]:
    """Return the input with its first symbol replaced, whether or not that changes the prediction."""
    other = next(symbol for symbol in task.src_vocab.symbols if symbol != prediction.symbols[0])
    return corrupt(model, task, prediction, position=0, replacement=other)
