"""Whether anything grows while the page is used without end: ``python -m core bench soak --minutes 10``.

Three visitors have the page open. Each second each asks for what the scripts of an open page ask for: the list of runs,
the figures of a run in training, its attention over the training; has an input decoded and one of its heads drawn as a
picture. A run trains all the while; as soon as it is over it is deleted and another one begins. Every five seconds the
server's memory, threads, open files and figures of matplotlib are counted. The first fifth of the time is warming up;
after it, the median of the first and of the last fifth are compared.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.page_load.served import SHIPPED, Page, Served, served

VISITORS = 3
SECONDS_BETWEEN_COUNTS = 5.0
MAY_GROW = 0.05  # memory, as a share
MAY_VARY = {
    "threads": 3,
    "open_files": 5,
    "figures": 10,
}  # requests that are being answered, and figures not yet collected
PRESET, CHANGES = "tiny", {"training.steps": 3_000}


@dataclass(frozen=True)
class Count:
    """What the server holds, ``minutes`` after the beginning."""

    minutes: float
    megabytes: float
    threads: int
    open_files: int
    figures: int


class Work:
    """What visitors do each second."""

    def __init__(self, app: Served) -> None:
        self.pages = [Page(app.address) for _ in range(VISITORS)]
        for page in self.pages:
            page.open()
        self.asked = self.trained = 0
        self.errors: list[str] = []
        self._run: str | None = None

    def turn(self) -> None:
        """Let all ask once."""
        self._train()
        for number, page in enumerate(self.pages):
            text = " ".join(str((self.asked + number + place) % 10) for place in range(3 + self.asked % 8))
            self._ask(lambda page=page: page.ask("run-bar.list_runs", {}))
            self._ask(lambda page=page: page.ask("charts.progress", {"run": SHIPPED}))
            self._ask(lambda page=page: page.ask("viewer.replay", {"run": SHIPPED}))
            self._ask(lambda page=page, text=text: self._draw(page, text))

    def _ask(self, ask: Callable[[], Any]) -> Any:
        self.asked += 1
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and told
            self.errors.append(f"{type(error).__name__}: {error}"[:200])
            return None
        if isinstance(answer, dict) and "error" in answer:
            self.errors.append(answer["error"])
        return answer

    def _draw(self, page: Page, text: str) -> Any:
        seen = page.call("attention", SHIPPED, text, "cross", 2, "", "", "zero")
        rows = [f"{row['produced']} <- {row['read']}" for row in seen["rows"]]
        head = seen["heads"][self.asked % len(seen["heads"])]
        asked = {"title": text, "rows": rows, "columns": seen["columns"], "weights": head["weights"]}
        return page.ask("viewer.picture", asked | {"marked": seen["marked"]})

    def _train(self) -> None:
        """Let a run train, and see how far it is; after its end, another one."""
        page = self.pages[0]
        if self._run is not None:
            stands = self._ask(lambda: page.ask("charts.progress", {"run": self._run}))
            if stands is None or stands.get("status") in ("training", "queued"):
                return
            self._ask(lambda: page.ask("run-menu.delete", {"run": self._run}))
            self.trained += 1
        started = self._ask(lambda: page.call("train", PRESET, CHANGES | {"training.seed": self.trained}))
        self._run = started and started["run"]


def misses(counts: list[Count]) -> list[str]:
    """Say what grew, from the second fifth of the time to the last."""
    fifth = len(counts) // 5
    if not fifth:
        return ["too short to tell"]
    first, last = (
        {name: median(getattr(each, name) for each in part) for name in Count.__dataclass_fields__}
        for part in (counts[fifth : 2 * fifth], counts[-fifth:])
    )
    grown = last["megabytes"] / first["megabytes"] - 1
    missed = [f"memory {100 * grown:+.1f} %"] if abs(grown) > MAY_GROW else []
    return missed + [
        f"{name} from {first[name]:g} to {last[name]:g}"
        for name, most in MAY_VARY.items()
        if last[name] - first[name] > most
    ]


def show(counts: list[Count], most: int = 11) -> None:
    """Print some of the counts, evenly spaced."""
    print(f"{'minute':>7} {'MB':>7} {'threads':>8} {'files':>6} {'figures':>8}")
    places = sorted({round(place * (len(counts) - 1) / (most - 1)) for place in range(most)})
    for each in (counts[place] for place in places):
        print(f"{each.minutes:>7.1f} {each.megabytes:>7.1f} {each.threads:>8} {each.open_files:>6} {each.figures:>8}")


def measure(minutes: float) -> tuple[list[Count], Work]:
    """Let visitors work for some minutes; return what was counted meanwhile."""
    counts: list[Count] = []
    with served(counting=True) as app:
        work, began = Work(app), time.monotonic()
        while time.monotonic() - began < 60 * minutes:
            turn = time.monotonic()
            work.turn()
            if time.monotonic() - began > SECONDS_BETWEEN_COUNTS * (len(counts) + 1):
                passed = (time.monotonic() - began) / 60
                counts.append(Count(passed, app.megabytes(), app.threads(), app.open_files(), app.figures()))
            time.sleep(max(0.0, 1 - (time.monotonic() - turn)))
    return counts, work


def main() -> int:
    """Measure and print; return 1 if anything grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    counts, work = measure(options.minutes)
    show(counts)
    print(f"{work.asked} requests, {work.trained} runs trained and deleted, {len(work.errors)} errors")
    for error in work.errors[:5]:
        print(f"  {error}")
    missed = misses(counts) + [f"{len(work.errors)} errors"] * bool(work.errors)
    print(f"grew: {', '.join(missed)}" if missed else "nothing grew")
    if options.json:
        told = {"requests": work.asked, "errors": len(work.errors), "missed": missed}
        print(json.dumps(told | {"counts": [asdict(each) for each in counts]}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
