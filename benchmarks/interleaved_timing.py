"""Time functions that are to be compared, in turns, so that a busy machine slows them alike."""

import time
from collections.abc import Callable
from statistics import median


def seconds_in_turns(functions: list[Callable[[], object]], *, rounds: int) -> list[list[float]]:
    """Return each function's seconds in each round, after one that does not count; who begins changes."""
    taken: list[list[float]] = [[] for _ in functions]
    for number in range(rounds + 1):
        order = range(len(functions)) if number % 2 else reversed(range(len(functions)))
        for place in order:
            seconds = seconds_of(functions[place])
            if number:
                taken[place].append(seconds)
    return taken


def median_ratio(seconds: list[float], others: list[float]) -> float:
    """Return the median of the ratios of each round: the machine was the same for both."""
    return median(one / other for one, other in zip(seconds, others, strict=True))


def seconds_of(function: Callable[[], object]) -> float:
    """Return how long one call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
