"""Whether memory, threads or files grow while the page is used: ``python -m core bench soak --minutes 10``.

Three visitors have the page open. Every second each sends the requests of an open page (list of runs, metrics of a run,
its attention replay), decodes an input and downloads a picture of one head. A run trains throughout; when it ends, it
is deleted and the next one is started. Every five seconds the server's memory, threads, open files and matplotlib
figures are counted. The first fifth of the time is a warm-up; the medians of the second and of the last fifth are
compared.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from statistics import median
from typing import Any

from benchmarks.page_load.app_process import SHIPPED_RUN, AppProcess, PageClient, serve_app

VISITORS = 3
SECONDS_BETWEEN_COUNTS = 5.0
MAX_MEMORY_CHANGE = 0.05  # fraction
MAX_GROWTH = {"threads": 3, "open_files": 5, "figures": 10}  # allows for requests in progress and uncollected figures
PRESET, CHANGES = "tiny", {"training.steps": 3_000}


@dataclass(frozen=True)
class ResourceCount:
    """Resources of the server, ``minutes`` after the start."""

    minutes: float
    megabytes: float
    threads: int
    open_files: int
    figures: int


class Workload:
    """The requests that the visitors send every second."""

    def __init__(self, app: AppProcess) -> None:
        self.pages = [PageClient(app.address) for _ in range(VISITORS)]
        for page in self.pages:
            page.open()
        self.requests = self.runs_trained = 0
        self.errors: list[str] = []
        self._run: str | None = None

    def send_requests(self) -> None:
        """Send the requests of one second for all visitors."""
        self._keep_training()
        for number, page in enumerate(self.pages):
            text = " ".join(str((self.requests + number + offset) % 10) for offset in range(3 + self.requests % 8))
            self._request(partial(page.call_component, "run-bar.list_runs", {}))
            self._request(partial(page.call_component, "run-bar.feed", {"run": SHIPPED_RUN}))
            self._request(partial(page.call_component, "viewer.replay", {"run": SHIPPED_RUN}))
            self._request(partial(self._download_picture, page, text))

    def _request(self, send: Callable[[], Any]) -> Any:
        self.requests += 1
        try:
            response = send()
        except Exception as error:  # noqa: BLE001 - every error is counted and reported
            self.errors.append(f"{type(error).__name__}: {error}"[:200])
            return None
        if isinstance(response, dict) and "error" in response:
            self.errors.append(response["error"])
        return response

    def _download_picture(self, page: PageClient, text: str) -> Any:
        attention = page.call_endpoint("attention", SHIPPED_RUN, text, "cross", 2, "", "", "zero")
        rows = [f"{row['produced']} <- {row['read']}" for row in attention["rows"]]
        head = attention["heads"][self.requests % len(attention["heads"])]
        picture = {"title": text, "rows": rows, "columns": attention["columns"], "weights": head["weights"]}
        return page.call_component("viewer.picture", picture | {"marked": attention["gold_cells"]})

    def _keep_training(self) -> None:
        """Request the progress of the current run; once it has ended, delete it and start the next."""
        page = self.pages[0]
        if self._run is not None:
            progress = self._request(partial(page.call_component, "run-bar.feed", {"run": self._run}))
            if progress is None or progress.get("status") in ("training", "queued"):
                return
            self._request(partial(page.call_component, "run-bar.delete", {"run": self._run}))
            self.runs_trained += 1
        changes = CHANGES | {"training.seed": self.runs_trained}
        started = self._request(partial(page.call_endpoint, "train", PRESET, changes))
        self._run = started and started["run"]


def find_growth(counts: list[ResourceCount]) -> list[str]:
    """Describe what grew from the second fifth of the time to the last."""
    fifth = len(counts) // 5
    if not fifth:
        return ["too short to tell"]
    first, last = (
        {field.name: median(getattr(count, field.name) for count in part) for field in fields(ResourceCount)}
        for part in (counts[fifth : 2 * fifth], counts[-fifth:])
    )
    memory_change = last["megabytes"] / first["megabytes"] - 1
    growth = [f"memory {100 * memory_change:+.1f} %"] if abs(memory_change) > MAX_MEMORY_CHANGE else []
    return growth + [
        f"{name} from {first[name]:g} to {last[name]:g}"
        for name, maximum in MAX_GROWTH.items()
        if last[name] - first[name] > maximum
    ]


def print_counts(counts: list[ResourceCount], max_rows: int = 11) -> None:
    """Print at most ``max_rows`` evenly spaced counts."""
    print(f"{'minute':>7} {'MB':>7} {'threads':>8} {'files':>6} {'figures':>8}")
    indices = sorted({round(row * (len(counts) - 1) / (max_rows - 1)) for row in range(max_rows)}) if counts else []
    for count in (counts[index] for index in indices):
        print(
            f"{count.minutes:>7.1f} {count.megabytes:>7.1f} {count.threads:>8} {count.open_files:>6} {count.figures:>8}"
        )


def measure(minutes: float) -> tuple[list[ResourceCount], Workload]:
    """Run the workload for some minutes and return the counts taken during it."""
    counts: list[ResourceCount] = []
    with serve_app(with_figure_count=True) as app:
        workload, started = Workload(app), time.monotonic()
        while time.monotonic() - started < 60 * minutes:
            second_started = time.monotonic()
            workload.send_requests()
            if time.monotonic() - started > SECONDS_BETWEEN_COUNTS * (len(counts) + 1):
                elapsed = (time.monotonic() - started) / 60
                counts.append(ResourceCount(elapsed, app.megabytes(), app.threads(), app.open_files(), app.figures()))
            time.sleep(max(0.0, 1 - (time.monotonic() - second_started)))
    return counts, workload


def main() -> int:
    """Measure and print; return 1 if anything grew or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    counts, workload = measure(options.minutes)
    print_counts(counts)
    errors = workload.errors
    print(f"{workload.requests} requests, {workload.runs_trained} runs trained and deleted, {len(errors)} errors")
    for error in errors[:5]:
        print(f"  {error}")
    missed = find_growth(counts) + [f"{len(errors)} errors"] * bool(errors)
    print(f"missed: {', '.join(missed)}" if missed else "nothing grew")
    if options.json:
        summary = {"requests": workload.requests, "errors": len(errors), "missed": missed}
        print(json.dumps(summary | {"counts": [asdict(count) for count in counts]}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
