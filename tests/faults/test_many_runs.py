"""Many runs started together, and one run stopped and resumed repeatedly: queue, speed, leaks."""

import gc
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from core.config import Preset, load_preset
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.server.limits import PUBLIC
from core.storage.errors import LabError
from core.teaching.bugs import new_state
from core.training.loop import StepEvent, train
from tests.faults.children import processes
from tests.support.run_helpers import wait_for

REQUESTED, QUEUED, CYCLES = 10, 4, 50
MIN_RELATIVE_SPEED = 0.8  # compared with two training loops alone, in CPU time; other programs share the caches


def seconds_a_step(steps: Callable[[], int], seconds: float = 8.0) -> float:
    """CPU time of this process per training step, measured over ``seconds``."""
    before, start, deadline = steps(), time.process_time(), time.monotonic() + seconds
    while time.monotonic() < deadline or steps() - before < 10:
        time.sleep(0.02)
    return (time.process_time() - start) / (steps() - before)


class BareTraining:
    """Two bare training loops in threads, as a baseline; they wait for ``go``."""

    def __init__(self, preset: Preset) -> None:
        self.steps, self.go, self.stop = [0, 0], threading.Event(), False
        self.threads = [threading.Thread(target=self._train, args=(preset, position)) for position in range(2)]
        for thread in self.threads:
            thread.start()

    def _train(self, preset: Preset, position: int) -> None:
        torch.set_num_threads(1)
        for event in train(new_state(preset.with_changes({"training.seed": position}))):
            self.go.wait()
            self.steps[position] += isinstance(event, StepEvent)
            if self.stop:
                return

    def end(self) -> None:
        self.stop = True
        self.go.set()
        for thread in self.threads:
            thread.join()


def start_together(runs: Runs, preset: Preset) -> tuple[list[str], list[str]]:
    """Start one run per visitor simultaneously; return the accepted names and the refusals."""

    current = threading.local()
    visitors_runs = VisitorRuns(runs, lambda: current.visitor)

    def start(number: int) -> tuple[str, str]:
        current.visitor = Visitor(f"owner-{number}")
        try:
            return visitors_runs.start(preset), ""
        except LabError as error:
            return "", str(error)

    with ThreadPoolExecutor(REQUESTED) as visitors:
        results = list(visitors.map(start, range(REQUESTED)))
    return [name for name, _ in results if name], [message for _, message in results if message]


def test_of_ten_runs_started_together_two_train_and_four_are_queued(root: Path):
    preset = load_preset("digits-reversal").with_changes({"training.steps": 20_000, "training.evaluate_every": 500})
    runs = Runs(root, limits=PUBLIC.model_copy(update={"max_queued": QUEUED}))
    bare = BareTraining(preset)
    try:
        started, refused = start_together(runs, preset)
        positions = [runs[name].progress.queue_position for name in started]
        assert positions.count(None) == 2
        assert sorted(position for position in positions if position) == list(range(1, len(started) - 1))
        assert runs.counts() == {"training": 2, "queued": len(started) - 2}
        assert len(started) + len(refused) == REQUESTED
        assert runs.counts()["queued"] == QUEUED
        assert all("runs are queued, which is the limit; try again" in message for message in refused)
        training = [name for name, position in zip(started, positions, strict=True) if position is None]
        wait_for(lambda: all(runs[name].info.step > 5 for name in training))
        with_all = seconds_a_step(lambda: sum(runs[name].info.step for name in training))
        runs.close()
        bare.go.set()
        wait_for(lambda: sum(bare.steps) > 10)
        alone = seconds_a_step(lambda: sum(bare.steps))
    finally:
        runs.close()
        bare.end()
    assert alone / with_all >= MIN_RELATIVE_SPEED


def resources() -> dict[str, float]:
    """Return the threads, open files and memory in MB of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) / 1000 for line in status if line.startswith("VmRSS"))
    threads = len(os.listdir("/proc/self/task"))
    return {"threads": threads, "files": len(os.listdir("/proc/self/fd")), "megabytes": memory}


def stop_and_resume(root: Path, connection: Connection) -> None:
    """Stop and resume a run again and again; send the resources before and after."""
    preset = load_preset("tiny").with_changes({"training.steps": 20_000, "training.evaluate_every": 100})
    runs = Runs(root)
    name = runs.start(preset)
    for number in range(CYCLES + 5):
        step = runs[name].info.step
        if number:
            runs.resume(name)
        wait_for(lambda step=step: runs[name].info.step > step)
        before = runs[name].info.step
        runs.stop(name)
        wait_for(lambda: not runs.active())
        assert runs[name].info.status == "stopped"
        assert runs[name].info.step <= before + 5  # steps between the two readings
        if number == 5:
            first = resources()
    wait_for(lambda: resources()["threads"] <= first["threads"], seconds=10)
    connection.send((first, resources()))
    runs.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the resources of a process can only be read on Linux")
def test_stopping_and_resuming_a_run_leaks_no_thread_file_or_memory(root: Path):
    context = processes()  # the heap of this process is that of all tests before
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=stop_and_resume, args=(root, sender))
    process.start()
    sender.close()
    before, after = receiver.recv()
    process.join()
    assert after["files"] <= before["files"]
    assert after["megabytes"] - before["megabytes"] <= 20
