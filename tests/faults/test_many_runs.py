"""Many runs asked for at once, and started and stopped again and again: who waits knows where; nothing is left."""

import gc
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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

ASKED, WAITING, CYCLES = 10, 4, 50
SHARE = 0.9  # of the speed of two bare trainings


def wait(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def seconds_a_step(steps: Callable[[], int], seconds: float = 8.0) -> float:
    """Processor time of this process for each step made meanwhile: other processes do not count."""
    before, began, deadline = steps(), time.process_time(), time.monotonic() + seconds
    while time.monotonic() < deadline or steps() - before < 10:
        time.sleep(0.02)
    return (time.process_time() - began) / (steps() - before)


class Bare:
    """Two trainings in threads, and nothing else; they pause where told to."""

    def __init__(self, preset: Preset) -> None:
        self.steps, self.go, self.stop = [0, 0], threading.Event(), False
        self.threads = [threading.Thread(target=self._train, args=(preset, place)) for place in range(2)]
        for thread in self.threads:
            thread.start()

    def _train(self, preset: Preset, place: int) -> None:
        torch.set_num_threads(1)
        for event in train(new_state(preset.with_changes({"training.seed": place}))):
            self.go.wait()
            self.steps[place] += isinstance(event, StepEvent)
            if self.stop:
                return

    def end(self) -> None:
        self.stop = True
        self.go.set()
        for thread in self.threads:
            thread.join()


def asked_at_once(runs: Runs, preset: Preset) -> tuple[list[str], list[str]]:
    """Let visitors ask for a run each at the same moment; return what begins or waits, and refusals."""

    who = threading.local()
    visitors_runs = VisitorRuns(runs, lambda: who.asks)

    def ask(number: int) -> tuple[str, str]:
        who.asks = Visitor(f"owner-{number}")
        try:
            return visitors_runs.start(preset), ""
        except LabError as error:
            return "", str(error)

    with ThreadPoolExecutor(ASKED) as visitors:
        answers = list(visitors.map(ask, range(ASKED)))
    return [name for name, _ in answers if name], [said for _, said in answers if said]


def test_of_ten_runs_asked_for_at_once_two_train_some_wait_and_the_rest_is_refused(root: Path, row):
    preset = load_preset("digits-reversal").with_changes({"training.steps": 20_000, "training.evaluate_every": 500})
    runs = Runs(root, limits=PUBLIC.model_copy(update={"max_queued": WAITING}))
    bare = Bare(preset)
    try:
        started, refused = asked_at_once(runs, preset)
        places = [runs.progress(name).queue_position for name in started]
        assert places.count(None) == 2
        assert sorted(place for place in places if place) == list(range(1, len(started) - 1))
        assert runs.counts() == {"training": 2, "queued": len(started) - 2}
        assert len(started) + len(refused) == ASKED
        assert runs.counts()["queued"] == WAITING
        assert all("runs are queued, which is the limit; try again" in said for said in refused)
        training = [name for name, place in zip(started, places, strict=True) if place is None]
        wait(lambda: all(runs.info(name).step > 5 for name in training))
        with_all = seconds_a_step(lambda: sum(runs.info(name).step for name in training))
        runs.close()
        bare.go.set()
        wait(lambda: sum(bare.steps) > 10)
        alone = seconds_a_step(lambda: sum(bare.steps))
    finally:
        runs.close()
        bare.end()
    assert alone / with_all >= SHARE
    found = f"2 train, {len(started) - 2} wait with their places, {len(refused)} refused with the reason"
    row("L2", "10 trainings asked for at once", "10 visitors", f"{found}; {100 * alone / with_all:.0f} % of bare speed")


def held() -> dict[str, float]:
    """What this process holds: threads, open files, MB of memory."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) / 1000 for line in status if line.startswith("VmRSS"))
    threads = len(os.listdir("/proc/self/task"))
    return {"threads": threads, "files": len(os.listdir("/proc/self/fd")), "megabytes": memory}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what a process holds can be read on Linux only")
def test_runs_that_are_started_and_stopped_leave_nothing_behind(root: Path, row):
    preset = load_preset("tiny").with_changes({"training.steps": 20_000, "training.evaluate_every": 100})
    runs, slowest = Runs(root), 0.0
    name = runs.start(preset)

    def cycle() -> float:
        wait(lambda: runs.info(name).step > step)
        before = runs.info(name).step
        began = time.monotonic()
        runs.stop(name)
        wait(lambda: not runs.active())
        assert runs.info(name).status == "stopped"
        assert runs.info(name).step <= before + 5  # those made between the two looks
        return time.monotonic() - began

    try:
        for number in range(CYCLES + 5):
            step = runs.info(name).step
            if number:
                runs.resume(name)
            slowest = max(slowest, cycle())
            if number == 5:
                before = held()
        wait(lambda: held()["threads"] <= before["threads"], 10)
        after = held()
    finally:
        runs.close()
    assert after["files"] <= before["files"]
    assert after["megabytes"] - before["megabytes"] <= 20
    assert slowest <= 1.5
    grown = f"{after['megabytes'] - before['megabytes']:+.0f} MB, no thread, no open file more"
    row("L4", "a run stopped and resumed", f"{CYCLES} times", f"{grown}; stopped within {slowest:.2f} s")
