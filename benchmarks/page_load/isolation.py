"""``bench isolation``: trainings in processes compared with trainings in threads, while many visitors use the page.

Rounds alternate: an app of each kind is started, two runs train, and visitors use the page as in ``bench load``. No
other program should run at the same time. The medians over all rounds are printed.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.page_load.app_process import serve_app
from benchmarks.page_load.load import SECONDS_WITHOUT_VISITORS, Trainings, visit

WAYS = ("threads", "processes")
LEAST_RATE = 0.95  # relative to the updates per second with threads
MOST_TIME = 1.05  # relative to the response times with threads: not slower, except for noise between rounds


@dataclass(frozen=True)
class Figures:
    """Measurements of one round; seconds of responses, and updates per second of both trainings together.

    Attributes:
        rate_alone: updates per second without visitors.
        rate: updates per second while people visit.
        decode, decode_p95: response times of people's decodes.
        all, all_p95: response times of all their requests.
        burst, burst_p95: response times of decodes that all visitors send at the same moment.
        health_p95: of ``/health`` while people visit.
        errors: failed requests.
        megabytes: memory of all processes of the app at the end.
    """

    rate_alone: float
    rate: float
    decode: float
    decode_p95: float
    all: float
    all_p95: float
    burst: float
    burst_p95: float
    health_p95: float
    errors: int
    megabytes: float


def measure(way: str, *, visitors: int, minutes: float) -> Figures:
    """Measure one round of one way."""
    with serve_app(options=("--train-in", way)) as app:
        trainings = Trainings(app)
        while trainings.steps() < 20:
            time.sleep(0.2)
        alone = trainings.steps_per_second(SECONDS_WITHOUT_VISITORS)
        flags = ("--visitors", str(visitors))
        people = visit(app, trainings, "people", *flags, "--seconds", str(60 * minutes))
        burst = visit(app, trainings, "burst", *flags, "--burst", "8")
        decode, total, at_once = people.responses["decode"], people.responses["all"], burst.responses["all"]
        return Figures(
            alone,
            people.steps_per_second,
            decode.median,
            decode.p95,
            total.median,
            total.p95,
            at_once.median,
            at_once.p95,
            people.health.p95,
            len(people.errors) + len(burst.errors),
            app.megabytes_of_all(),
        )


def medians(rounds: list[Figures]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: median(getattr(each, name) for each in rounds) for name in Figures.__dataclass_fields__}


def is_taken(threads: dict[str, float], processes: dict[str, float]) -> bool:
    """Return whether processes keep response times, and updates per second do not fall by more than 5 %."""
    times = ("decode", "decode_p95", "all", "all_p95")
    keeps_times = all(processes[name] <= MOST_TIME * threads[name] for name in times)
    keeps_rates = all(processes[name] >= LEAST_RATE * threads[name] for name in ("rate", "rate_alone"))
    return keeps_times and keeps_rates and processes["errors"] <= threads["errors"]


def main() -> int:
    """Measure and print a table; return 1 if processes are slower than threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds: dict[str, list[Figures]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            rounds[way].append(measure(way, visitors=options.visitors, minutes=options.minutes))
            print(f"round {number + 1}, {way}: {asdict(rounds[way][-1])}", flush=True)
    results = {way: medians(measured) for way, measured in rounds.items()}
    print(f"\n{'':12} {'threads':>10} {'processes':>10} {'ratio':>7}")
    for name, value in results["threads"].items():
        other = results["processes"][name]
        print(f"{name:12} {value:>10.3f} {other:>10.3f} " + (f"{other / value:>7.2f}" if value else ""))
    taken = is_taken(results["threads"], results["processes"])
    print("processes keep response times and updates" if taken else "processes are slower than threads")
    if options.json:
        every = {way: [asdict(each) for each in measured] for way, measured in rounds.items()}
        print(json.dumps({"benchmark": "isolation", "medians": results, "rounds": every}))
    return int(not taken)


if __name__ == "__main__":
    sys.exit(main())
