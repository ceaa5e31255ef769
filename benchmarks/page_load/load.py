"""Many visitors while two runs train: ``python -m core bench load``.

The app is served from one process as on a public Space, visitors send requests from a second one, and this one requests
``/health`` throughout. benchmarks/page_load/visitors.py describes the visitors. Two more visitors train a shared run
each; the speed of both trainings is measured before and during the visits.
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
from typing import IO, Any

from benchmarks.page_load.app_process import REPOSITORY, AppProcess, PageClient, serve_app
from benchmarks.page_load.visitors import BUSY

# Targets: seconds of the median response, of the 95th percentile, and of that of /health; peak memory.
MAX_MEDIAN, MAX_P95, MAX_HEALTH_P95, MAX_MEGABYTES = 1.0, 3.0, 0.25, 1_000.0
PRESET, CHANGES = "digits-reversal", {"training.steps": 20_000}
SECONDS_WITHOUT_VISITORS = 15.0
SECONDS_BETWEEN_PINGS = 0.05
NO_RESPONSE = 60.0  # seconds counted for a failed ping


@dataclass(frozen=True)
class ResponseTimes:
    """Response times in seconds."""

    count: int
    median: float
    p95: float
    max: float

    @classmethod
    def of(cls, seconds: list[float]) -> "ResponseTimes":
        """Summarize measured times; all zero if there are none."""
        if len(seconds) < 2:
            return cls(len(seconds), *[max(seconds, default=0.0)] * 3)
        return cls(len(seconds), median(seconds), quantiles(seconds, n=20, method="inclusive")[-1], max(seconds))


@dataclass(frozen=True)
class VisitResult:
    """Measurements while visitors used the page.

    Attributes:
        kind: "people" or "burst".
        responses: response times by request; "all" leaves out the page's own polling of the list of runs.
        busy: number of requests refused with a request to try again.
        errors: messages of the requests that failed otherwise.
        health: response times of ``/health``.
        steps_per_second: of both trainings together.
        megabytes: peak memory of the server.
    """

    kind: str
    seconds: float
    responses: dict[str, ResponseTimes]
    busy: int
    errors: list[str]
    health: ResponseTimes
    steps_per_second: float
    megabytes: float

    def missed_targets(self) -> list[str]:
        """Return the names of the targets that were missed."""
        total = self.responses["all"]
        targets = (
            (f"{len(self.errors)} errors", len(self.errors), 0),
            ("95 % of the responses", total.p95, MAX_P95),
            ("95 % of /health", self.health.p95, MAX_HEALTH_P95),
            ("memory", self.megabytes, MAX_MEGABYTES),
        )
        missed = [name for name, value, maximum in targets if value > maximum]
        return missed + ["median response"] * (self.kind == "people" and total.median > MAX_MEDIAN)


class Trainings:
    """Two runs in training, each started and shared by a visitor of its own."""

    def __init__(self, app: AppProcess) -> None:
        self._pages = [PageClient(app.address) for _ in range(2)]
        self.names = [self._start(page, seed) for seed, page in enumerate(self._pages)]

    def _start(self, page: PageClient, seed: int) -> str:
        page.open()
        run = page.call_endpoint("train", PRESET, CHANGES | {"training.seed": seed}, "")["run"]
        page.call_component("run-bar.share", {"run": run, "shared": True})
        return run

    def steps(self) -> int:
        """Return the steps both have completed."""
        runs = zip(self._pages, self.names, strict=True)
        return sum(page.call_component("run-bar.feed", {"run": name})["step"] for page, name in runs)

    def steps_per_second(self, seconds: float) -> float:
        """Measure the speed of both for some seconds."""
        started, before = time.perf_counter(), self.steps()
        time.sleep(seconds)
        return (self.steps() - before) / (time.perf_counter() - started)


class HealthPings:
    """Pings in a thread until ``stop`` is called.

    Args:
        ping: sends one request and returns the seconds to the response.
    """

    def __init__(self, ping: Callable[[], float]) -> None:
        self.seconds: list[float] = []
        self._ping, self._stop = ping, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_PINGS):
            try:
                self.seconds.append(self._ping())
            except OSError:
                self.seconds.append(NO_RESPONSE)

    def stop(self) -> ResponseTimes:
        """Stop pinging and return the response times."""
        self._stop.set()
        self._thread.join()
        return ResponseTimes.of(self.seconds)


def visit(app: AppProcess, trainings: Trainings, kind: str, *flags: str) -> VisitResult:
    """Run visitors in a separate process and measure at the same time; ``flags`` are those of visitors.py."""
    runs = ",".join(trainings.names)
    command = [sys.executable, "-m", "benchmarks.page_load.visitors", app.address, "--runs", runs, *flags]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        _read_json_line(process.stdout)  # the visitors begin
        pings, before, started = HealthPings(app.ping), trainings.steps(), time.perf_counter()
        report = _read_json_line(process.stdout)
        health, seconds = pings.stop(), time.perf_counter() - started
        speed = (trainings.steps() - before) / seconds
    return summarize(kind, report, health, speed, app.megabytes("VmHWM"))


def _read_json_line(stream: IO[str] | None) -> dict[str, Any]:
    line = stream.readline() if stream else ""
    if not line:
        raise RuntimeError("the process of the visitors ended early")
    return json.loads(line)


def summarize(
    kind: str, report: dict[str, Any], health: ResponseTimes, steps_per_second: float, megabytes: float
) -> VisitResult:
    """Summarize what visitors.py printed."""
    requests = report["requests"]
    is_busy = [any(word in error.lower() for word in BUSY) for *_, error in requests]
    errors = [
        f"{name}: {error}" for (name, _, error), busy in zip(requests, is_busy, strict=True) if error and not busy
    ]
    names = dict.fromkeys(name for name, *_ in requests)
    times = {name: ResponseTimes.of([seconds for each, seconds, _ in requests if each == name]) for name in names}
    times["all"] = ResponseTimes.of([seconds for name, seconds, _ in requests if name != "list of runs"])
    return VisitResult(kind, report["seconds"], times, sum(is_busy), errors, health, steps_per_second, megabytes)


def print_results(results: list[VisitResult], speed_without_visitors: float) -> None:
    """Print a table."""
    for result in results:
        print(f"\n{result.kind}, {result.seconds:.0f} s")
        print(f"  {'':22} {'requests':>8} {'median':>8} {'95 %':>8} {'max':>8}")
        for name, times in [*result.responses.items(), ("/health", result.health)]:
            seconds = (times.median, times.p95, times.max)
            print(f"  {name:22} {times.count:>8} " + " ".join(f"{1000 * value:>5.0f} ms" for value in seconds))
        print(f"  {'errors':22} {len(result.errors):>8}, and {result.busy} times busy")
        for error in result.errors[:5]:
            print(f"    {error}")
        print(
            f"  {'both trainings':22} {result.steps_per_second:>8.1f} steps/s; "
            f"without visitors {speed_without_visitors:.1f}"
        )
        print(f"  {'peak memory of server':22} {result.megabytes:>8.0f} MB")


def main() -> int:
    """Measure and print; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with serve_app() as app:
        trainings = Trainings(app)
        while trainings.steps() < 20:
            time.sleep(0.2)
        speed = trainings.steps_per_second(SECONDS_WITHOUT_VISITORS)
        print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, two trainings included", flush=True)
        visitors = ["--visitors", str(options.visitors)]
        results = [
            visit(app, trainings, "people", *visitors, "--seconds", str(60 * options.minutes)),
            visit(app, trainings, "burst", *visitors, "--burst", "8"),
        ]
    print_results(results, speed)
    missed = [f"{result.kind}: {target}" for result in results for target in result.missed_targets()]
    print("\n" + (f"missed: {', '.join(missed)}" if missed else "all targets reached"))
    if options.json:
        visits = [asdict(result) for result in results]
        print(json.dumps({"steps_per_second_without_visitors": speed, "visits": visits, "missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
