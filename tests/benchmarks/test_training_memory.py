"""The memory of training with batches of many lengths is as estimated, and does not grow."""

import pytest

from benchmarks import training_memory
from benchmarks.training_memory import measure_trainings, without_package


@pytest.mark.slow
def test_training_with_many_lengths_takes_what_is_estimated_and_stays_flat(monkeypatch):
    if missing := without_package(["g2p-english"]):
        pytest.skip(missing["g2p-english"])
    monkeypatch.setattr(training_memory, "UPDATES", 400)
    monkeypatch.setattr(training_memory, "FIRST_READING", 200)
    [training] = measure_trainings(["g2p-english"])
    assert training.problems == []
    assert training.highest > 0.5 * training.estimated  # else the estimate is no estimate
