"""``bench memory``: memory growth of long trainings, one recorded as the page does, and the memory of one update.

A snapshot of the attention is recorded at every evaluation, of which there are many here; a replay keeps a bounded
number of them. The estimate of the memory of an update is compared with PyTorch's peak allocation, which it estimates,
and with the growth of the process, which is larger, because the C library keeps freed blocks.
"""

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.allocated_memory import highest_allocated_bytes
from benchmarks.resident_memory import forget_highest, highest_resident_bytes, resident_bytes
from benchmarks.training_memory import FIRST_READING, PRESETS, measure_trainings, without_package
from core.config import Preset, load_preset
from core.models import build_model
from core.runs import RunFolder
from core.runs.recorder import Recorder
from core.storage.errors import InputError
from core.tasks import build_task
from core.teaching.bugs import new_state
from core.training.loop import EvaluationEvent, train
from core.training.loss import loss_of_logits
from core.training.memory import estimate_memory
from core.training.optimizers import build_optimizer

PRESET, STEPS, EVALUATE_EVERY, READINGS = "tiny", 5_000, 10, 5
UPDATED, BATCHES, LENGTHS = "small", (1, 2, 4, 8, 16), (64, 128, 256, 512)
WARM_UP = 2, 8  # sequences and tokens of the first, unmeasured update of a process


@dataclass(frozen=True)
class Reading:
    """Memory in use after some steps.

    Attributes:
        resident: resident set size of the process in bytes.
        snapshots: number of snapshots in the replay.
    """

    step: int
    resident: int
    snapshots: int


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train and print the memory in use at a few steps, that of one update, and that of each preset."""
    names = list(PRESETS) if options.presets is None else options.presets.split(",")
    skipped = without_package(names)
    if options.updates <= FIRST_READING:
        raise InputError(f"--updates={options.updates} must be more than {FIRST_READING}, the first reading of memory")
    print(f"{PRESET}, {STEPS:,} steps, evaluated and its attention recorded every {EVALUATE_EVERY}")
    readings = []
    for reading in measure_memory():
        readings.append(reading)
        print(
            f"  after {reading.step:>6,} steps: {reading.resident / 1e6:6.0f} MB in memory, "
            f"{reading.snapshots:>3} snapshots of the attention",
            flush=True,
        )
    growth = readings[-1].resident - readings[0].resident
    print(f"  growth from first to last: {growth / 1e6:+.1f} MB, {growth / readings[0].resident:+.1%}")
    print(f"\nmemory of an update of {UPDATED}, MB")
    print(f"  {'batch':>8}{'tokens':>8}{'estimate':>12}{'allocated':>12}{'estimate ÷ allocated':>22}{'process':>12}")
    updates = []
    for update in measure_updates():
        updates.append(update)
        sizes = f"{update.estimated / 1e6:12.1f}{update.allocated / 1e6:12.1f}"
        ratio = update.estimated / update.allocated
        print(f"  {update.batch_size:8}{update.length:8}{sizes}{ratio:22.2f}{update.resident / 1e6:12.1f}", flush=True)
    return {
        "preset": PRESET,
        "readings": [asdict(reading) for reading in readings],
        "updates": [asdict(update) for update in updates],
        "trainings": _trainings([name for name in names if name not in skipped], options.updates, skipped),
    }


def _trainings(names: list[str], updates: int, skipped: dict[str, str]) -> list[dict[str, Any]]:
    """Measure and print the memory that training each preset takes."""
    print("\nmost that a process grows by while it trains, MB")
    print(f"  {'preset':24}{'updates':>10}{'estimate':>12}{'at first':>12}{'at the end':>12}{'process':>12}")
    for name, missing in skipped.items():
        print(f"  {name:24}not measured: it {missing}")
    trainings = []
    for each in measure_trainings(names, updates):
        trainings.append(asdict(each) | {"problems": each.problems})
        figures = (each.estimated, each.first, each.highest, each.process)
        sizes = "".join(f"{size / 1e6:12.0f}" for size in figures)
        print(f"  {each.preset:24}{each.updates:10,}{sizes}   {'; '.join(each.problems) or 'as estimated, and flat'}")
    return trainings


def measure_memory() -> Iterator[Reading]:
    """Train in a temporary folder and yield ``READINGS`` evenly spaced readings."""
    changes = {"training.steps": STEPS, "training.evaluate_every": EVALUATE_EVERY, "training.validation_sequences": 16}
    preset = load_preset(PRESET).with_changes(changes)
    with tempfile.TemporaryDirectory() as root:
        folder = RunFolder.create(Path(root), preset, name="memory")
        state = new_state(preset)
        recorder = Recorder(folder, state)
        for event in train(state):
            recorder.record(event)
            if isinstance(event, EvaluationEvent) and event.step and event.step % (STEPS // READINGS) == 0:
                yield Reading(event.step, resident_bytes(), len(recorder.replay.snapshots()))


@dataclass(frozen=True)
class UpdateMemory:
    """Bytes that one update takes, weights and optimizer included.

    Attributes:
        estimated: by ``estimate_memory``, without overhead and evaluations.
        allocated: PyTorch's peak allocation.
        resident: growth of the process's resident set.
    """

    batch_size: int
    length: int
    estimated: int
    allocated: int
    resident: int


def measure_updates() -> Iterator[UpdateMemory]:
    """Measure updates of every batch size and length, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    for batch_size in BATCHES:
        for length in LENGTHS:
            with context.Pool(1) as pool:
                yield pool.apply(measure_update, (UPDATED, batch_size, length))


def measure_update(name: str, batch_size: int, length: int) -> UpdateMemory:
    """Measure an update of a preset with random tokens in this process, which must be new."""
    torch.set_num_threads(1)
    preset = load_preset(name).with_changes({"model.max_seq_len": max(LENGTHS), "training.validation_sequences": 1})
    estimated = estimate_memory(preset, batch_size=batch_size, length=length).allocated
    _allocated_by_update(preset, *WARM_UP)
    forget_highest()
    before = highest_resident_bytes()
    allocated = _allocated_by_update(preset, batch_size, length)
    return UpdateMemory(batch_size, length, estimated, allocated, highest_resident_bytes() - before)


def _allocated_by_update(preset: Preset, batch_size: int, length: int) -> int:
    """Make two updates; return the peak of the second one, with the model and the optimizer's state."""
    generator = torch.Generator().manual_seed(0)
    model = build_model(preset.model, build_task(preset.task), generator).train()
    optimizer = build_optimizer(preset.training, model)
    ids = torch.randint(4, 10, (batch_size, length), generator=generator)

    def update() -> None:
        optimizer.zero_grad()
        loss_of_logits(model(ids, ids), ids, preset.training).backward()
        optimizer.step()

    update()
    optimizer.zero_grad()
    highest = highest_allocated_bytes(update)
    kept = [*model.parameters(), *(each for state in optimizer.state.values() for each in state.values())]
    fixed = sum(each.numel() * each.element_size() for each in kept if isinstance(each, torch.Tensor))
    return fixed + highest
