"""How long queued runs wait until they start."""

import heapq
import math
import threading
import time
from collections.abc import Iterable, Sequence

from core.runs.estimate import TrainingTime
from core.server.estimates import Estimates
from core.server.live import LiveRun
from core.server.workers import WorkerPool

CACHE_SECONDS = 1.0  # the page of every student in the queue asks twice a second


def starting_times(remaining: Iterable[float], durations: Sequence[float], *, workers: int) -> list[float]:
    """Return the seconds until each run of a queue starts; infinite if something it waits for cannot be estimated.

    Args:
        remaining: seconds that each run in training still takes.
        durations: seconds that each queued run takes, in the order of the queue.
        workers: how many runs train at the same time.
    """
    free = sorted(remaining)[:workers]
    free += [0.0] * (workers - len(free))
    starts = []
    for duration in durations:
        starts.append(heapq.heappop(free))
        heapq.heappush(free, starts[-1] + duration)
    return starts


class WaitingTimes:
    """The waiting times of a worker pool's queue, calculated once a second at most. Thread-safe."""

    def __init__(self, pool: WorkerPool, estimates: Estimates, *, max_workers: int) -> None:
        self._pool, self._estimates, self._max_workers = pool, estimates, max_workers
        self._lock, self._calculated_at = threading.Lock(), -math.inf
        self._seconds: dict[str, float | None] = {}

    def seconds_to_start(self, name: str) -> float | None:
        """Return the estimated seconds until a queued run starts; None if they cannot be estimated."""
        with self._lock:
            if name not in self._seconds or time.monotonic() - self._calculated_at > CACHE_SECONDS:
                self._seconds, self._calculated_at = self._calculate(), time.monotonic()
            return self._seconds.get(name)

    def _calculate(self) -> dict[str, float | None]:
        queued = self._pool.queued()
        waiting = {live.folder.name for live in queued}
        training = [live for live in self._pool.active() if live.folder.name not in waiting]
        remaining = [(live.preset.training.steps - live.info.step) * _seconds_per_step(live) for live in training]
        durations = [self._duration(live, training) for live in queued]
        starts = starting_times(remaining, durations, workers=self._max_workers)
        return {
            live.folder.name: start if math.isfinite(start) else None
            for live, start in zip(queued, starts, strict=True)
        }

    def _duration(self, queued: LiveRun, training: Sequence[LiveRun]) -> float:
        """Return how long a queued run will train: like one of its kind that trains now, else as estimated."""
        steps = queued.preset.training.steps - queued.info.step
        for live in training:
            same = (live.preset.model, live.preset.task) == (queued.preset.model, queued.preset.task)
            if same and math.isfinite(_seconds_per_step(live)):
                return steps * _seconds_per_step(live)
        pairs = queued.folder.pairs if queued.preset.task.own_data else None
        estimate = self._estimates.get(queued.preset, pairs)
        if not isinstance(estimate, TrainingTime):
            return math.inf
        # two trainings at the same time are no faster than one after the other, see TrainingTime
        return estimate.midpoint * self._max_workers * steps / queued.preset.training.steps


def _seconds_per_step(live: LiveRun) -> float:
    rate = live.steps_per_second()
    return 1 / rate if rate else math.inf
