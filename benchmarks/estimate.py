"""``bench estimate``: estimated training times compared with those of real trainings.

Each preset is estimated and then trained to its end through the server's runs, as on the page, in a temporary folder.
The time is measured from the start of the run to its end on disk. No other program should run at the same time.
"""

import argparse
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.config import Preset, load_preset
from core.config.listing import listed_presets, missing_package
from core.reports.formatting import duration_range
from core.runs.estimate import TrainingTime, estimate_training_time
from core.server import Runs
from core.storage.errors import InputError

MOST_SECONDS = 300.0  # estimate up to which presets are trained by default
WARM_UP_PRESET = "tiny"  # measured first and not counted, because it imports and allocates what all presets use
_SECONDS_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True)
class Comparison:
    """A preset's estimate and its real training, in seconds."""

    preset: str
    low: float
    high: float
    midpoint: float
    actual: float

    @property
    def ratio(self) -> float:
        """The midpoint of the estimate divided by the real time."""
        return self.midpoint / self.actual


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Estimate and train presets one after another and print a table."""
    chosen = _chosen(options.presets)
    width = max(len(preset.name) for preset in chosen)
    print("training times on the CPU, 1 thread")
    print(f"{'preset':{width}} {'estimate':>14} {'midpoint':>10} {'actual':>10} {'midpoint ÷ actual':>18}", flush=True)
    estimate_training_time(load_preset(WARM_UP_PRESET))
    comparisons = []
    for preset in chosen:
        estimate = estimate_training_time(preset)
        if estimate is None and options.presets is not None:
            raise InputError(f"--presets={preset.name}: it is too large to measure")
        if estimate is None or (options.presets is None and estimate.midpoint >= MOST_SECONDS):
            continue
        comparisons.append(_compare(preset, estimate))
        _print_row(comparisons[-1], width)
    within = sum(each.low <= each.actual <= each.high for each in comparisons)
    print(f"\n{within} of {len(comparisons)} within the estimated range")
    return {"presets": [asdict(each) | {"ratio": each.ratio} for each in comparisons]}


def _chosen(names: str | None) -> list[Preset]:
    """Return the presets of these names, or all that can be trained here."""
    presets = listed_presets() if names is None else [load_preset(name) for name in names.split(",")]
    for preset in presets:
        if names is not None and (missing := missing_package(preset)):
            raise InputError(f"--presets={preset.name}: it {missing}")
    return [preset for preset in presets if not missing_package(preset)]


def _compare(preset: Preset, estimate: TrainingTime) -> Comparison:
    return Comparison(preset.name, estimate.low, estimate.high, estimate.midpoint, seconds_to_train(preset))


def seconds_to_train(preset: Preset) -> float:
    """Train a preset to its end in a temporary folder, and return the seconds from its start to its end."""
    with tempfile.TemporaryDirectory() as root:
        runs = Runs(Path(root))
        started = time.perf_counter()
        name = runs.start(preset)
        while runs.active():
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        seconds = time.perf_counter() - started
        info = runs[name].info
        runs.close()
    if info.status != "finished":
        raise InputError(f"--presets={preset.name}: the training ended as {info.status}; {info.message}")
    return seconds


def _print_row(row: Comparison, width: int) -> None:
    estimate = duration_range(row.low, row.high)
    print(
        f"{row.preset:{width}} {estimate:>14} {row.midpoint:>8.1f} s {row.actual:>8.1f} s {row.ratio:>18.2f}",
        flush=True,
    )
