"""How often a training can be evaluated without slowing it down, from the times that updates and evaluations take."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

SHARE = 0.01  # of the time of the training that evaluations may take
WRITES_SHARE = 0.003  # likewise, that writing one file may take
MEASURED, MEASURED_SECONDS = 5, 0.5  # updates at least, and seconds, before the interval is chosen
WARM_UP = 1  # updates that are not measured: the first allocates memory
MAX_EVERY = 100_000


class Pace:
    """Chooses the steps of evaluations, and holds them back while they take too much of the time.

    Args:
        every: steps between two evaluations; None chooses them, so that they take ``SHARE`` of the time.
        is_fixed: whether to evaluate every so many steps, whatever it costs.

    Attributes:
        every: as given, or as chosen; None until enough updates were measured.
        cost: seconds of an evaluation.
        seconds_per_step: of an update; 0 until enough were measured.
    """

    def __init__(self, every: int | None, *, is_fixed: bool) -> None:
        self.every, self.is_fixed = every, is_fixed
        self.cost = 0.0
        self.seconds_per_step = 0.0
        self._intervals: list[float] = []
        self._started: float | None = None
        self._ended = time.perf_counter()
        self._spent = 0.0

    def begin(self) -> None:
        """Note that a step of the training has ended, and that time is now spent on watching it."""
        now = time.perf_counter()
        if self._started is None:
            self._started, self._spent = now, 0.0  # what was evaluated before does not count
        if not self.seconds_per_step:
            self._intervals.append(now - self._ended)
            timed = self._intervals[WARM_UP:]
            if len(timed) >= MEASURED and sum(timed) >= MEASURED_SECONDS:
                self.seconds_per_step = median(timed)
                self.every = self.every or round_interval(self.cost / (SHARE * self.seconds_per_step))
        self._ended = now

    def end(self) -> None:
        """Note that the training goes on."""
        self._ended = time.perf_counter()

    def evaluated(self, seconds: float) -> None:
        """Note that an evaluation took these seconds."""
        self._spent += seconds
        self.cost = max(seconds, self.cost / 2)

    def is_due(self, step: int) -> bool:
        """Whether to evaluate after this step."""
        if self.every is None or step % self.every:
            return False
        so_far = time.perf_counter() - (self._started or 0.0)
        return self.is_fixed or self._spent + self.cost / 2 <= SHARE * so_far  # half: steps do not take equal times


class Spacing:
    """Says when a file may be written again: after some seconds, or more if writing it takes long.

    Args:
        seconds: between the end of a write and the next, at least.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = self._least = seconds
        self._ended = time.perf_counter()

    def is_due(self) -> bool:
        """Whether to write now."""
        return time.perf_counter() - self._ended > self._seconds

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the block, which writes."""
        started = time.perf_counter()
        yield
        self._ended = time.perf_counter()
        self._seconds = max(self._least, (self._ended - started) / WRITES_SHARE)


def round_interval(steps: float) -> int:
    """Round up to 1, 2 or 5 times a power of ten, at most ``MAX_EVERY``."""
    if steps >= MAX_EVERY:
        return MAX_EVERY
    power = 10 ** max(0, math.floor(math.log10(max(steps, 1))))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= 0.99 * steps)
