"""``bench step``: updates a second, beside the same model from ``nn.Transformer``'s parts, and the share of the peak.

Both draw batches of the same task, compute the mean loss, clip gradients and make an update with PyTorch's Adam; theirs
as tutorials do it. Ours is timed twice: with padding like theirs, and with batches of like lengths
(``training.group_by_length``), as many sequences an update but less PAD to compute. The peak is what products of large
matrices reach on this machine meanwhile.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.interleaved_timing import median_ratio, seconds_in_turns
from benchmarks.plain_transformer import rival_of
from core.config import Preset, load_preset
from core.evaluation.accuracy import sequence_loss
from core.tasks import POOL_BATCHES, build_task
from core.teaching.bugs import new_state
from core.training.loop import train

PRESETS = ("digits-reversal", "small")
ROUNDS, STEPS = 15, POOL_BATCHES  # so that batches of like lengths come by in every length
PEAK_WIDTH = 1024
ALIKE = {
    "training.optimizer": "adam",
    "training.weight_decay": 0.0,
    "training.label_smoothing": 0.0,
    "training.group_by_length": False,
    "training.steps": 100_000,
    "training.evaluate_every": 100_000,
    "training.validation_sequences": 1,
}


@dataclass(frozen=True)
class StepRate:
    """What was measured of a preset: medians of ``ROUNDS`` rounds of ``STEPS`` updates.

    Attributes:
        milliseconds, milliseconds_by_length, milliseconds_plain: of one update, ours, ours with batches of like
            lengths, and theirs.
        ratio, ratio_by_length: theirs to ours.
        share_of_peak: of the additions and multiplications in our matrix products, 0-1.
    """

    preset: str
    milliseconds: float
    milliseconds_by_length: float
    milliseconds_plain: float
    ratio: float
    ratio_by_length: float
    share_of_peak: float


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the presets, and print a table."""
    print(f"updates on the CPU, 1 thread; medians of {ROUNDS} rounds of {STEPS}, in turns with nn.Transformer's parts")
    measured = []
    for name in PRESETS:
        measured.append(measure_step(load_preset(name).with_changes(ALIKE)))
        _print(measured[-1])
    return {"presets": [asdict(each) for each in measured]}


def measure_step(preset: Preset) -> StepRate:
    """Time updates of ours, of theirs, and the product of two large matrices."""
    ours, theirs = _our_updates(preset), _their_updates(preset)
    by_length = _our_updates(preset.with_changes({"training.group_by_length": True}))
    large = torch.randn(PEAK_WIDTH, PEAK_WIDTH)
    with FlopCounterMode(display=False) as counter:
        ours()
    functions = [ours, by_length, theirs, lambda: large @ large]
    own, grouped, plain, product = seconds_in_turns(functions, rounds=ROUNDS)
    work = counter.get_total_flops() / (2 * PEAK_WIDTH**3)  # in products of the large matrices
    milliseconds = [1000 * median(each) / STEPS for each in (own, grouped, plain)]
    return StepRate(
        preset.name,
        *milliseconds,
        median_ratio(plain, own),
        median_ratio(plain, grouped),
        work * median_ratio(product, own),
    )


def _our_updates(preset: Preset) -> Callable[[], None]:
    """Return what makes ``STEPS`` updates as a run does."""
    events = train(new_state(preset))
    next(events)  # the evaluation before the first

    def updates() -> None:
        for _ in range(STEPS):
            next(events)

    return updates


def _their_updates(preset: Preset) -> Callable[[], None]:
    """Return what makes ``STEPS`` updates as a tutorial does."""
    model, task, config = rival_of(preset).train(), build_task(preset.task), preset.training
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


def _print(rate: StepRate) -> None:
    print(f"\n{rate.preset}")
    print(f"  {'an update':30} {rate.milliseconds:>8.1f} ms (nn.Transformer's parts: {rate.milliseconds_plain:.1f} ms)")
    print(f"  {'updates a second':30} {rate.ratio:>8.2f} times as many as theirs")
    print(f"  {'matrix products':30} {100 * rate.share_of_peak:>8.0f} % of the peak")
    print(f"  {'an update, batches by length':30} {rate.milliseconds_by_length:>8.1f} ms")
    print(f"  {'updates a second':30} {rate.ratio_by_length:>8.2f} times as many as theirs", flush=True)
