"""How long a preset would train on this machine, measured before anybody presses Train."""

import time
from statistics import mean

from core.config import Preset
from core.models import parameters_of
from core.tasks import POOL_BATCHES, build_task
from core.training.loop import StepEvent, train
from core.training.state import new_state

_MEASURED_OPERATIONS = 2e10  # in one measured step: under a second on one core
_TIMED_STEPS = 8
_LONGEST_SECONDS = 1.0


def seconds_to_train(preset: Preset) -> float | None:
    """Estimate the time to train a preset from a few real steps of it on one torch thread.

    A large batch is measured in part and the time scaled up, so that the estimate itself takes about a second.

    Returns:
        Seconds, evaluations not counted; None where even one sequence at a time is too much to try.
    """
    tokens = preset.task.longest_source + preset.task.longest_answer
    operations = 6 * parameters_of(preset.model, build_task(preset.task)) * tokens  # per sequence
    batch_size = min(preset.training.batch_size, int(_MEASURED_OPERATIONS / operations))
    if not batch_size:
        return None
    trial = preset.with_changes(
        {
            "training.batch_size": batch_size,
            "training.gradient_accumulation_steps": 1,
            "training.teacher_forcing_schedule": "constant",  # from 1 falling, the first steps would be the quickest
            "training.validation_sequences": 1,
            "training.evaluate_every": 100_000,
        }
    )
    scale = preset.training.sequences_per_step / batch_size
    return _seconds_per_step(trial) * scale * preset.training.steps


def _seconds_per_step(preset: Preset) -> float:
    """Return the fastest of a few steps or, where batches differ in length, their mean.

    The first does not count if there are others: it also pays for warming up.
    """
    by_length = preset.training.group_by_length
    steps = 1 + (POOL_BATCHES if by_length else _TIMED_STEPS)
    times: list[float] = []
    started = last = time.perf_counter()
    for event in train(new_state(preset.with_bug(None))):
        now = time.perf_counter()
        if isinstance(event, StepEvent):
            times.append(now - last)
        last = now
        if len(times) == steps or (now - started > _LONGEST_SECONDS and times):
            break
    later = times[1:] or times
    return mean(later) if by_length else min(later)
