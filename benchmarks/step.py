"""``bench step``: updates per second compared with ``torch.nn``'s Transformer, and the fraction of peak FLOP/s.

Both draw batches of the same task, compute the mean loss, clip gradients and update with PyTorch's Adam. The project's
model is timed twice: with padded batches like the baseline's, and with batches of similar lengths
(``training.group_by_length``), as many sequences per update with less padding. The peak is the rate of products of
large matrices, measured in the same rounds.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.baseline import build_baseline
from benchmarks.interleaved_timing import median_ratio, time_interleaved
from core.config import Preset, load_preset
from core.evaluation.accuracy import sequence_loss
from core.tasks import POOL_BATCHES, build_task
from core.teaching.bugs import new_state
from core.training.loop import train

PRESETS = ("digits-reversal", "small")
ROUNDS, STEPS = 15, POOL_BATCHES  # enough steps for batches of every length
PEAK_MATRIX_SIZE = 1024
COMPARABLE_SETTINGS = {
    "training.optimizer": "adam",
    "training.weight_decay": 0.0,
    "training.label_smoothing": 0.0,
    "training.group_by_length": False,
    "training.steps": 100_000,
    "training.evaluate_every": 100_000,
    "training.validation_sequences": 1,
}


@dataclass(frozen=True)
class StepTimes:
    """Measurements for one preset: medians over ``ROUNDS`` rounds of ``STEPS`` updates.

    Attributes:
        milliseconds, milliseconds_by_length, milliseconds_baseline: of one update: padded batches, batches grouped by
            length, and the baseline.
        speedup, speedup_by_length: time of the baseline divided by ours.
        fraction_of_peak: FLOP/s of our matrix products divided by the peak, 0-1.
    """

    preset: str
    milliseconds: float
    milliseconds_by_length: float
    milliseconds_baseline: float
    speedup: float
    speedup_by_length: float
    fraction_of_peak: float


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the presets and print a table."""
    print(f"updates on the CPU, 1 thread; medians of {ROUNDS} interleaved rounds of {STEPS}; baseline: nn.Transformer")
    results = []
    for name in PRESETS:
        results.append(measure_step(load_preset(name).with_changes(COMPARABLE_SETTINGS)))
        _print(results[-1])
    return {"presets": [asdict(result) for result in results]}


def measure_step(preset: Preset) -> StepTimes:
    """Time our updates, the baseline's, and the product of two large matrices, interleaved."""
    padded, baseline = _our_updates(preset), _baseline_updates(preset)
    by_length = _our_updates(preset.with_changes({"training.group_by_length": True}))
    matrix = torch.randn(PEAK_MATRIX_SIZE, PEAK_MATRIX_SIZE)
    with FlopCounterMode(display=False) as counter:
        padded()
    functions: list[Callable[[], object]] = [padded, by_length, baseline, lambda: matrix @ matrix]
    own, grouped, other, product = time_interleaved(functions, rounds=ROUNDS)
    work = counter.get_total_flops() / (2 * PEAK_MATRIX_SIZE**3)  # in products of the large matrices
    return StepTimes(
        preset=preset.name,
        milliseconds=1000 * median(own) / STEPS,
        milliseconds_by_length=1000 * median(grouped) / STEPS,
        milliseconds_baseline=1000 * median(other) / STEPS,
        speedup=median_ratio(other, own),
        speedup_by_length=median_ratio(other, grouped),
        fraction_of_peak=work * median_ratio(product, own),
    )


def _our_updates(preset: Preset) -> Callable[[], None]:
    """Return a function that makes ``STEPS`` updates as a run does."""
    events = train(new_state(preset))
    next(events)  # the evaluation before the first update

    def updates() -> None:
        for _ in range(STEPS):
            next(events)

    return updates


def _baseline_updates(preset: Preset) -> Callable[[], None]:
    """Return a function that makes ``STEPS`` updates of the baseline as a tutorial does."""
    model, task, config = build_baseline(preset).train(), build_task(preset.task), preset.training
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    generator = torch.Generator().manual_seed(config.seed)

    def updates() -> None:
        for _ in range(STEPS):
            batch = task.sample(config.batch_size, split="train", generator=generator)
            optimizer.zero_grad()
            loss = sequence_loss(model(batch.src, batch.tgt_in), batch.tgt_out)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_gradient_norm)
            optimizer.step()
            loss.item()

    return updates


def _print(times: StepTimes) -> None:
    print(f"\n{times.preset}")
    print(f"  {'one update':30} {times.milliseconds:>8.1f} ms (baseline: {times.milliseconds_baseline:.1f} ms)")
    print(f"  {'updates per second':30} {times.speedup:>8.2f} × the baseline")
    print(f"  {'matrix products':30} {100 * times.fraction_of_peak:>8.0f} % of peak")
    print(f"  {'one update, batches by length':30} {times.milliseconds_by_length:>8.1f} ms")
    print(f"  {'updates per second':30} {times.speedup_by_length:>8.2f} × the baseline", flush=True)
