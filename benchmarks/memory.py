"""``bench memory``: memory growth of a long training that is recorded as the page does.

A snapshot of the attention is recorded at every evaluation, of which there are many here; a replay keeps a bounded
number of them.
"""

import argparse
import gc
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.config import load_preset
from core.runs import RunFolder
from core.runs.recorder import Recorder
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import EvaluationEvent, train

PRESET, STEPS, EVALUATE_EVERY, READINGS = "tiny", 5_000, 10, 5


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
    """Train and print the memory in use at a few steps."""
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
    return {"preset": PRESET, "readings": [asdict(reading) for reading in readings]}


def measure_memory() -> Iterator[Reading]:
    """Train in a temporary folder and yield ``READINGS`` evenly spaced readings."""
    changes = {"training.steps": STEPS, "training.evaluate_every": EVALUATE_EVERY, "training.validation_sequences": 16}
    preset = load_preset(PRESET).with_changes(changes)
    with tempfile.TemporaryDirectory() as root:
        folder = RunFolder.create(Path(root), preset, name="memory")
        state = new_state(preset)
        recorder = Recorder(folder, state, History())
        for event in train(state):
            recorder.record(event)
            if isinstance(event, EvaluationEvent) and event.step and event.step % (STEPS // READINGS) == 0:
                yield Reading(event.step, resident_bytes(), len(recorder.replay.snapshots()))


def resident_bytes() -> int:
    """Return the resident set size of this process in bytes (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
