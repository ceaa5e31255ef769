"""Estimate how long training a preset takes on this machine, from a few measured steps."""

import time
from pathlib import Path
from statistics import mean

from core.config import Preset
from core.models import parameters_of
from core.tasks import POOL_BATCHES, build_task
from core.training.loop import StepEvent, train
from core.training.state import new_state

_MEASURED_OPERATIONS = 2e10  # floating-point operations of one measured step: under a second on one core
_TIMED_STEPS = 8
_MAX_SECONDS = 1.0


def seconds_to_train(preset: Preset, *, pairs: Path | None = None) -> float | None:
    """Estimate the training time of a preset from a few real steps on one torch thread.

    The batch is made smaller where a step would take long and the time scaled up, so that the estimate itself takes
    about a second.

    Args:
        pairs: the file of the task's own pairs, if it has any.

    Returns:
        Seconds without evaluations; None if even a batch of one sequence is too large to measure.
    """
    tokens = preset.task.longest_source + preset.task.longest_answer
    parameters = parameters_of(preset.model, build_task(preset.task, pairs=pairs))
    operations = 6 * parameters * tokens  # per sequence, both passes
    batch_size = min(preset.training.batch_size, int(_MEASURED_OPERATIONS / operations))
    if not batch_size:
        return None
    trial = preset.with_changes(
        {
            "training.batch_size": batch_size,
            "training.gradient_accumulation_steps": 1,
            "training.teacher_forcing_schedule": "constant",  # the linear one begins with its fastest steps
            "training.validation_sequences": 1,
            "training.evaluate_every": 100_000,
        }
    )
    scale = preset.training.sequences_per_step / batch_size
    return _seconds_per_step(trial, pairs) * scale * preset.training.steps


def _seconds_per_step(preset: Preset, pairs: Path | None) -> float:
    """Return the shortest of a few measured steps or, where batches differ in length, their mean.

    The first step includes warming up and is dropped if there are others.
    """
    by_length = preset.training.group_by_length
    steps = 1 + (POOL_BATCHES if by_length else _TIMED_STEPS)
    times: list[float] = []
    started = previous = time.perf_counter()
    for event in train(new_state(preset.with_bug(None), pairs=pairs)):
        now = time.perf_counter()
        if isinstance(event, StepEvent):
            times.append(now - previous)
        previous = now
        if len(times) == steps or (now - started > _MAX_SECONDS and times):
            break
    warm = times[1:] or times
    return mean(warm) if by_length else min(warm)
