"""The memory of training with batches of many lengths is as estimated, and does not grow."""

import pytest

from benchmarks import training_memory
from benchmarks.training_memory import measure_trainings, without_package


@pytest.mark.slow
@pytest.mark.parametrize("preset", training_memory.PRESETS)
def test_training_with_many_lengths_takes_what_is_estimated_and_stays_flat(monkeypatch, preset):
    if missing := without_package([preset]):
        pytest.skip(missing[preset])
    monkeypatch.setattr(training_memory, "FIRST_READING", 200)
    [training] = measure_trainings([preset], updates=400)
    assert training.problems == []
    assert training.highest > 0.5 * training.estimated  # else the estimate is no estimate
