"""``bench replay``: cost of recording a training replay and the model's health: three trainings, interleaved."""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from core.config import Preset, load_preset
from core.interpret.health import Health
from core.runs import RunFolder, recorder
from core.runs.recorder import Recorder
from core.runs.replay import Replay
from core.teaching.bugs import new_state
from core.training import loop
from core.training.loop import EndEvent, EvaluationEvent, StepEvent, train

PRESETS = ("digits-reversal", "tiny")


@dataclass(frozen=True)
class ReplayCost:
    """A preset trained to its end, with and without a replay, and with a replay without health.

    Attributes:
        seconds, seconds_without_health, seconds_without: processor time of the training with a replay, with a replay
            without health, and without a replay, from the second evaluation on; includes evaluations and files.
        snapshots: in the replay at the end.
        bytes_on_disk: size of the replay's file.
    """

    preset: str
    seconds: float
    seconds_without_health: float
    seconds_without: float
    snapshots: int
    bytes_on_disk: int

    @property
    def overhead(self) -> float:
        """Overhead of the replay, as a fraction of the training without it."""
        return self.seconds / self.seconds_without - 1

    @property
    def health_overhead(self) -> float:
        """Overhead of recording the health, as a fraction of the training with a replay without it."""
        return self.seconds / self.seconds_without_health - 1


class RecorderWithoutHealth(Recorder):
    """Records attention snapshots only."""

    def _health(self, event: EvaluationEvent) -> Health | None:
        return None


class NoUpdateMeasurement:
    """Replaces the measurement of an update, and measures nothing."""

    def __init__(self, model: object) -> None:
        pass

    def norms(self) -> None:
        """Return no norms."""


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train presets with and without a replay and its health, and print a table."""
    print("training on the CPU, 1 thread, with a replay, without its health, and without a replay, interleaved")
    costs = []
    for preset in PRESETS:
        costs.append(measure_replay(preset))
        print_cost(costs[-1])
    return {
        "presets": [
            asdict(cost) | {"overhead": cost.overhead, "health_overhead": cost.health_overhead} for cost in costs
        ]
    }


def measure_replay(name: str) -> ReplayCost:
    """Train a preset three times, interleaved at every evaluation, so that a busy machine slows all equally."""
    preset = load_preset(name)
    with tempfile.TemporaryDirectory() as root:
        folders = [RunFolder.create(Path(root), preset, name=run) for run in ("with", "without-health", "without")]
        runs = [_segments(folder, preset) for folder in folders]
        between_saves = recorder.MIN_SECONDS_BETWEEN_SAVES * len(runs)  # the clock continues during others' turns
        with patch.object(recorder, "MIN_SECONDS_BETWEEN_SAVES", between_saves):
            seconds, seconds_without_health, seconds_without = _interleave(runs)
        replay = Replay.load(folders[0].replay_file, preset.training.evaluate_every)
        bytes_on_disk = folders[0].replay_file.stat().st_size
        return ReplayCost(
            name, seconds, seconds_without_health, seconds_without, len(replay.snapshots()), bytes_on_disk
        )


def _interleave(runs: list[Iterator[float]]) -> list[float]:
    """Return the seconds of each run without its first segment, a warm-up; the order reverses every round."""
    seconds: list[list[float]] = [[] for _ in runs]
    for number in count():
        order = range(len(runs)) if number % 2 else reversed(range(len(runs)))
        for index in order:
            seconds[index].extend(islice(runs[index], 1))
        if any(len(segments) <= number for segments in seconds):
            break
    return [sum(segments[1:]) for segments in seconds]


def _segments(folder: RunFolder, preset: Preset) -> Iterator[float]:
    """Train, and yield the processor seconds of each segment: an evaluation and the updates up to the next."""
    started = time.process_time()
    state = new_state(preset)
    recorder_class = Recorder if folder.name == "with" else RecorderWithoutHealth
    recording = recorder_class(folder, state, with_replay=folder.name != "without")
    events = train(state)
    is_over = False
    while not is_over:
        is_healthless = folder.name != "with"
        with patch.object(loop, "UpdateMeasurement", NoUpdateMeasurement) if is_healthless else nullcontext():
            for event in events:
                recording.record(event)
                is_over = isinstance(event, EndEvent)
                if is_over or (isinstance(event, StepEvent) and event.step % preset.training.evaluate_every == 0):
                    break
        yield time.process_time() - started
        started = time.process_time()


def print_cost(cost: ReplayCost) -> None:
    """Print the measurements of one preset."""
    print(
        f"\n{cost.preset}: {cost.seconds:.1f} s of processor time with replay, {cost.seconds_without_health:.1f} s"
        f" without its health, {cost.seconds_without:.1f} s without replay"
    )
    print(f"  {'overhead':30} {100 * cost.overhead:>8.1f} % of the training time")
    print(f"  {'of which health':30} {100 * cost.health_overhead:>8.1f} %")
    print(f"  {'recorded':30} {cost.snapshots:>8} snapshots, {cost.bytes_on_disk / 1000:.0f} kB on disk")
