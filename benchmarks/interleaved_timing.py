"""Interleaved timing: functions are timed in turns, so that a busy machine slows all of them equally."""

import time
from collections.abc import Callable, Sequence
from statistics import median


def time_interleaved(
    functions: Sequence[Callable[[], object]],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: bool = True,
) -> list[list[float]]:
    """Call all functions once per round and return the seconds of each: ``seconds[function][round]``.

    The order reverses every round.

    Args:
        clock: ``time.process_time`` measures the time of all threads, without other programs.
        warm_up: whether to begin with a round that is not counted; False if all functions were called before.
    """
    seconds: list[list[float]] = [[] for _ in functions]
    for number in range(0 if warm_up else 1, rounds + 1):
        order = range(len(functions)) if number % 2 else reversed(range(len(functions)))
        for index in order:
            elapsed = time_once(functions[index], clock)
            if number:
                seconds[index].append(elapsed)
    return seconds


def median_ratio(seconds: list[float], others: list[float]) -> float:
    """Return the median over rounds of ``seconds / others``, each taken in the same round."""
    return median(one / other for one, other in zip(seconds, others, strict=True))


def time_once(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that one call takes."""
    started = clock()
    function()
    return clock() - started
