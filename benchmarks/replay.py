"""``bench replay``: what keeping a run's replay costs, by the same training with and without it in one process."""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from core.config import Preset, load_preset
from core.runs import RunFolder
from core.runs.recorder import Recorder
from core.runs.replay import Replay
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import EndEvent, StepEvent, train

PRESETS = ("digits-reversal", "tiny")


@dataclass(frozen=True)
class ReplayCost:
    """A preset trained in full, recorded in a folder each time.

    Attributes:
        seconds, seconds_without: of processor time, for the training with and without a replay, from its second
            evaluation on; evaluations and files are included, waiting for the disk or for other programs is not.
        snapshots: in the replay at the end.
        bytes_on_disk: of its file.
    """

    preset: str
    seconds: float
    seconds_without: float
    snapshots: int
    bytes_on_disk: int

    @property
    def share(self) -> float:
        """What the replay adds to the training's time, as a share of it."""
        return self.seconds / self.seconds_without - 1


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train presets with and without a replay, and print a table."""
    print("training on the CPU, 1 thread, with and without a replay in turns")
    measured = []
    for preset in PRESETS:
        measured.append(measure_replay(preset))
        print_cost(measured[-1])
    return {"presets": [asdict(each) | {"share": each.share} for each in measured]}


def measure_replay(name: str) -> ReplayCost:
    """Train a preset twice at once, in turns of one evaluation each: what slows the processor slows both alike."""
    preset = load_preset(name)
    with tempfile.TemporaryDirectory() as root:
        folders = [RunFolder.create(Path(root), preset, name=run) for run in ("with", "without")]
        runs = [_turns(folder, preset, with_replay=folder.name == "with") for folder in folders]
        seconds = _in_turns(runs)
        replay = Replay.load(folders[0].replay, preset.training.evaluate_every)
        return ReplayCost(name, *seconds, len(replay.snapshots()), folders[0].replay.stat().st_size)


def _in_turns(runs: list[Iterator[float]]) -> list[float]:
    """Return what each took for all its turns but the first, which warms the process up; who begins changes."""
    turns: list[list[float]] = [[] for _ in runs]
    for number in count():
        order = range(len(runs)) if number % 2 else reversed(range(len(runs)))
        for place in order:
            turns[place].extend(islice(runs[place], 1))
        if any(len(taken) <= number for taken in turns):
            return [sum(taken[1:]) for taken in turns]


def _turns(folder: RunFolder, preset: Preset, *, with_replay: bool) -> Iterator[float]:
    """Train, and yield the processor seconds of each turn: an evaluation and the updates up to the next."""
    started = time.process_time()
    state = new_state(preset)
    recorder = Recorder(folder, state, History(preset.training.steps), with_replay=with_replay)
    for event in train(state):
        recorder.record(event)
        turn_over = isinstance(event, StepEvent) and event.step % preset.training.evaluate_every == 0
        if turn_over or isinstance(event, EndEvent):
            yield time.process_time() - started
            started = time.process_time()


def print_cost(cost: ReplayCost) -> None:
    """Say it in three lines."""
    print(
        f"\n{cost.preset}: {cost.seconds:.1f} s of processor time with a replay, {cost.seconds_without:.1f} s without"
    )
    print(f"  {'recording costs':30} {100 * cost.share:>8.1f} % of the training time")
    print(f"  {'kept':30} {cost.snapshots:>8} snapshots, {cost.bytes_on_disk / 1000:.0f} kB on disk")
