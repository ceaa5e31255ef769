"""The estimated time of a sweep: from three of its trials, by work, seeds, jobs and budget."""

import pytest

from core.config.listing import work
from core.runs.estimate import TrainingTime
from core.runs.sweeps.estimate import START_SECONDS, estimate_sweep_time
from core.runs.sweeps.trials import examined_trials
from tests.runs.sweeps.conftest import make_sweep


def test_a_grid_takes_the_sum_of_its_trials_whose_times_grow_with_their_work(tiny):
    sweep = make_sweep(axes={"training.steps": [8, 16, 24, 32, 40]}, seeds=2)
    measured = []

    def time_of(preset) -> TrainingTime:
        measured.append(preset.training.steps)
        return TrainingTime(work(preset), 2 * work(preset))

    trials = examined_trials(sweep, tiny)
    found = estimate_sweep_time(sweep, trials, runs=10, jobs=2, time_of=time_of)
    assert measured == [8, 24, 40]
    seconds = 2 * sum(work(trial.preset) for trial in trials)
    assert found.low == pytest.approx((seconds + 10 * START_SECONDS) / 2)
    assert found.high == pytest.approx((2 * seconds + 10 * START_SECONDS) / 2)


def test_a_search_takes_between_its_quickest_and_its_slowest_trial(tiny):
    sweep = make_sweep(axes={"training.steps": {"low": 8, "high": 80}}, seeds=1, search="random", trials=10)
    quick, slow = TrainingTime(1, 2), TrainingTime(8, 10)
    found = estimate_sweep_time(
        sweep,
        examined_trials(sweep, tiny),
        runs=10,
        jobs=4,
        time_of=lambda preset: quick if preset.training.steps == 8 else slow,
    )
    assert found.low == pytest.approx((1 + START_SECONDS) * 2.5)
    assert found.high == pytest.approx((10 + START_SECONDS) * 3)  # 4 + 4 + 2 runs


def test_minutes_are_an_upper_limit_and_nothing_is_measured(tiny):
    sweep = make_sweep(goal={"minutes": 2.0})
    found = estimate_sweep_time(sweep, [], runs=5, jobs=2, time_of=lambda preset: pytest.fail("measured"))
    assert (found.low, found.high) == (0.0, 3 * (120 + START_SECONDS))


def test_what_cannot_be_measured_has_no_estimate(tiny):
    sweep = make_sweep()
    trials = examined_trials(sweep, tiny)
    assert estimate_sweep_time(sweep, trials, runs=8, jobs=1, time_of=lambda preset: None) is None
