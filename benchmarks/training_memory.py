"""Part of ``bench memory``: growth of a process that trains and records a preset, compared with the estimate.

Each preset is trained in its own process, because batches of many lengths leave kernels and freed blocks in memory. It
is evaluated, recorded and saved as by ``train`` on the command line.
"""

import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.resident_memory import forget_highest, highest_resident_bytes, resident_bytes
from core.config import load_preset
from core.config.listing import missing_package
from core.runs import RunFolder
from core.runs.recorder import Recorder
from core.tasks import build_task
from core.teaching.bugs import new_state
from core.training.loop import StepEvent, train
from core.training.memory import training_memory

PRESETS = ("g2p-english", "translate-en-de")  # of many lengths, one with a large vocabulary
FIRST_READING = 300  # updates
TOLERANCE = 0.25  # allowed growth relative to the estimate
MOST_GROWTH = 0.1  # fraction of the estimate, from the first reading to the end: fragmentation still grows


@dataclass(frozen=True)
class TrainingMemory:
    """Growth of a process in bytes during training, after it has read the task's data.

    Attributes:
        estimated: by ``training_memory``, overhead included.
        first: peak up to the first reading, after ``FIRST_READING`` updates.
        highest: peak up to the last update.
        process: peak of the whole process, Python and PyTorch included.
    """

    preset: str
    updates: int
    estimated: int
    first: int
    highest: int
    process: int

    @property
    def problems(self) -> list[str]:
        """The problems: more memory than estimated, or memory that keeps growing; empty if there are none."""
        problems = []
        if self.highest > (1 + TOLERANCE) * self.estimated:
            problems.append(f"more than {1 + TOLERANCE:g} × the estimate")
        if self.highest - self.first > MOST_GROWTH * self.estimated:
            problems.append(f"still grows by {(self.highest - self.first) / 1e6:.0f} MB after the first reading")
        return problems


def without_package(names: list[str]) -> dict[str, str]:
    """Return the presets that cannot be trained here, each with the missing package.

    Raises:
        InputError: there is no such preset.
    """
    return {name: missing for name in names if (missing := missing_package(load_preset(name)))}


def measure_trainings(names: list[str], updates: int) -> Iterator[TrainingMemory]:
    """Train each preset for ``updates`` updates, in its own process."""
    context = multiprocessing.get_context("spawn")
    for name in names:
        with context.Pool(1) as pool:
            first, highest, process = pool.apply(_measure, (name, updates, FIRST_READING))
        # Estimated here, because its imports are not part of a training
        yield TrainingMemory(name, updates, training_memory(load_preset(name)).total, first, highest, process)


def _measure(name: str, updates: int, first_reading: int) -> tuple[int, int, int]:
    """Train a preset in this process, which must be new; return ``first``, ``highest`` and ``process``."""
    torch.set_num_threads(1)
    preset = load_preset(name)
    preset = preset.with_changes({"training.steps": max(updates, preset.training.steps)})
    build_task(preset.task)
    before, first = resident_bytes(), 0
    forget_highest()
    with tempfile.TemporaryDirectory() as root:
        state = new_state(preset)
        recorder = Recorder(RunFolder.create(Path(root), preset, name="memory"), state)
        for event in train(state):
            recorder.record(event)
            if isinstance(event, StepEvent) and event.step == first_reading:
                first = highest_resident_bytes() - before
            if event.step == updates:
                break
    process = highest_resident_bytes()
    return first, process - before, process
