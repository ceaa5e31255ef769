"""Many visitors while two runs train: ``python -m core bench load``.

The app serves in one process as strangers get it, visitors ask from a second one, and this one asks ``/health`` all the
while. How visitors behave is said in ``benchmarks/page_load/visitors.py``. Two other visitors train a run each and share it;
their speed alone, before anybody comes, stands beside their speed meanwhile.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

from benchmarks.page_load.served import REPOSITORY, Page, Served, served
from benchmarks.page_load.visitors import BUSY

MEDIAN, MOST, HEALTH, MEGABYTES = 1.0, 3.0, 0.25, 1_000.0
PRESET, CHANGES = "digits-reversal", {"training.steps": 20_000}
SECONDS_ALONE = 15.0
SECONDS_BETWEEN_PINGS = 0.05


@dataclass(frozen=True)
class Times:
    """Seconds until answers came."""

    count: int
    median: float
    of_95_percent: float
    most: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Times":
        """Sum up some; zeros of none."""
        if len(seconds) < 2:
            return cls(len(seconds), *[max(seconds, default=0.0)] * 3)
        return cls(len(seconds), median(seconds), quantiles(seconds, n=20)[-1], max(seconds))


@dataclass(frozen=True)
class Visit:
    """What came of visitors.

    Attributes:
        requests: how many there were, by what was asked, and how long they took; "all" is those that asked for an
            answer, which leaves out the page's own list of runs.
        busy, errors: requests that were refused with the words to try again, and those that failed otherwise.
        health: of ``/health`` meanwhile.
        steps_per_second: of both trainings together meanwhile.
        megabytes: of the server at its highest.
    """

    what: str
    seconds: float
    requests: dict[str, Times]
    busy: int
    errors: list[str]
    health: Times
    steps_per_second: float
    megabytes: float

    def misses(self) -> list[str]:
        """Say which targets were missed."""
        everything = self.requests["all"]
        measured = (
            (f"{len(self.errors)} errors", len(self.errors), 0),
            ("95 % of the answers", everything.of_95_percent, MOST),
            ("95 % of /health", self.health.of_95_percent, HEALTH),
            ("memory", self.megabytes, MEGABYTES),
        )
        missed = [what for what, value, most in measured if value > most]
        return missed + ["median answer"] * (self.what == "people" and everything.median > MEDIAN)


class Trainings:
    """Two runs of two visitors, shared with all who know their names."""

    def __init__(self, app: Served) -> None:
        self._pages = [Page(app.address) for _ in range(2)]
        self.names = [self._start(page, seed) for seed, page in enumerate(self._pages)]

    def _start(self, page: Page, seed: int) -> str:
        page.open()
        run = page.call("train", PRESET, CHANGES | {"training.seed": seed})["run"]
        page.ask("run-menu.share", {"run": run, "shared": True})
        return run

    def steps(self) -> int:
        """Return the steps both have made."""
        runs = zip(self._pages, self.names, strict=True)
        return sum(page.ask("charts.progress", {"run": name})["step"] for page, name in runs)

    def speed_for(self, seconds: float) -> float:
        """Wait, and return how many steps they made a second."""
        began, before = time.perf_counter(), self.steps()
        time.sleep(seconds)
        return (self.steps() - before) / (time.perf_counter() - began)


class Pings:
    """Asks in a thread until told to stop.

    Args:
        ping: asks once, and returns the seconds to the answer.
    """

    def __init__(self, ping: Callable[[], float]) -> None:
        self.seconds: list[float] = []
        self._ping, self._stop = ping, threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_PINGS):
            try:
                self.seconds.append(self._ping())
            except OSError:
                self.seconds.append(60.0)  # no answer

    def end(self) -> Times:
        """Stop asking; return how long the answers took."""
        self._stop.set()
        self._thread.join()
        return Times.of(self.seconds)


def visit(app: Served, trainings: Trainings, what: str, *flags: str) -> Visit:
    """Let visitors come, in a process of their own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.page_load.visitors",
        app.address,
        "--runs",
        ",".join(trainings.names),
        *flags,
    ]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        json.loads(process.stdout.readline())  # they begin
        pings, before, began = Pings(app.ping), trainings.steps(), time.perf_counter()
        came = json.loads(process.stdout.readline())
        health, seconds = pings.end(), time.perf_counter() - began
        speed = (trainings.steps() - before) / seconds
    return summed_up(what, came, health, speed, app.megabytes("VmHWM"))


def summed_up(what: str, came: dict[str, Any], health: Times, speed: float, megabytes: float) -> Visit:
    """Sum up what visitors printed."""
    requests = came["requests"]
    is_busy = [any(word in problem.lower() for word in BUSY) for *_, problem in requests]
    errors = [
        f"{name}: {problem}" for (name, _, problem), busy in zip(requests, is_busy, strict=True) if problem and not busy
    ]
    names = dict.fromkeys(name for name, *_ in requests)
    times = {name: Times.of([seconds for each, seconds, _ in requests if each == name]) for name in names}
    times["all"] = Times.of([seconds for name, seconds, _ in requests if name != "list of runs"])
    return Visit(what, came["seconds"], times, sum(is_busy), errors, health, speed, megabytes)


def show(visits: list[Visit], alone: float) -> None:
    """Print a table."""
    for each in visits:
        print(f"\n{each.what}, {each.seconds:.0f} s")
        print(f"  {'':22} {'requests':>8} {'median':>8} {'95 %':>8} {'most':>8}")
        for name, times in [*each.requests.items(), ("/health", each.health)]:
            seconds = (times.median, times.of_95_percent, times.most)
            print(f"  {name:22} {times.count:>8} " + " ".join(f"{1000 * value:>5.0f} ms" for value in seconds))
        print(f"  {'errors':22} {len(each.errors):>8}, and {each.busy} times busy")
        for error in each.errors[:5]:
            print(f"    {error}")
        print(f"  {'training, both':22} {each.steps_per_second:>8.1f} steps/s; alone {alone:.1f}")
        print(f"  {'memory of the server':22} {each.megabytes:>8.0f} MB at its highest")


def main() -> int:
    """Measure and print; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with served() as app:
        trainings = Trainings(app)
        while trainings.steps() < 20:
            time.sleep(0.2)
        alone = trainings.speed_for(SECONDS_ALONE)
        print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, two trainings included", flush=True)
        many = ["--visitors", str(options.visitors)]
        visits = [
            visit(app, trainings, "people", *many, "--seconds", str(60 * options.minutes)),
            visit(app, trainings, "burst", *many, "--burst", "8"),
        ]
    show(visits, alone)
    missed = [f"{each.what}: {miss}" for each in visits for miss in each.misses()]
    print("\n" + (f"missed: {', '.join(missed)}" if missed else "all targets reached"))
    if options.json:
        print(json.dumps({"alone": alone, "visits": [asdict(each) for each in visits], "missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
