"""Estimate how long a sweep takes, from the training times of its trials with the least, middle and most work."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.config import Preset
from core.config.listing import work
from core.runs.estimate import TrainingTime
from core.runs.sweeps.sweep import Sweep
from core.runs.sweeps.trials import Trial

START_SECONDS = 3.0  # of a run's process, which imports PyTorch
_Point = tuple[float, TrainingTime]


@dataclass(frozen=True)
class SweepTime:
    """A range of seconds that a sweep takes if no trial is pruned.

    Attributes:
        runs: number of runs that are still to be trained.
        jobs: number of runs that train at the same time.
    """

    low: float
    high: float
    runs: int
    jobs: int


def estimate_sweep_time(
    sweep: Sweep, trials: Sequence[Trial], *, runs: int, jobs: int, time_of: Callable[[Preset], TrainingTime | None]
) -> SweepTime | None:
    """Estimate the time of a sweep; None if a preset's time cannot be measured.

    The times of up to three trials are measured; between them, time grows linearly with ``work``. A search may draw
    any value, so its range is from all runs being as quick as the quickest trial to all being as slow as the slowest.

    Args:
        trials: those of a grid, or of a search some with extreme values.
        runs: number of runs that are still to be trained.
        jobs: number of runs that train at the same time.
        time_of: measures a preset's training time.
    """
    if sweep.goal.minutes is not None:  # a run that makes all its steps earlier ends earlier
        seconds = 60 * sweep.goal.minutes + START_SECONDS
        return SweepTime(0.0, seconds * -(-runs // jobs), runs, jobs)
    by_work = sorted(trials, key=lambda trial: work(trial.preset))
    points: list[_Point] = []
    for trial in dict.fromkeys((0, len(by_work) // 2, len(by_work) - 1)):
        time = time_of(by_work[trial].preset)
        if time is None:
            return None
        points.append((work(by_work[trial].preset), time))
    if sweep.search == "grid":
        times = [_between(points, work(trial.preset)) for trial in by_work]
        low, high = (sum(each) / len(times) for each in zip(*times, strict=True))
    else:
        low, high = min(time.low for _, time in points), max(time.high for _, time in points)
    waves = max(runs / jobs, 1) if runs else 0  # of runs that train at the same time; the last one may be smaller
    return SweepTime((low + START_SECONDS) * waves, (high + START_SECONDS) * -(-runs // jobs), runs, jobs)


def _between(points: list[_Point], amount: float) -> tuple[float, float]:
    """Return the low and high time for an amount of work, between those of the measured amounts."""
    at = bisect_left([each for each, _ in points], amount)
    if at == 0 or at == len(points):
        _, time = points[min(at, len(points) - 1)]
        return time.low, time.high
    (less, quick), (more, slow) = points[at - 1 : at + 1]
    share = (amount - less) / (more - less)
    return quick.low + share * (slow.low - quick.low), quick.high + share * (slow.high - quick.high)
