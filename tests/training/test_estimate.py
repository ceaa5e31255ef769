"""The estimated training time is positive, about right, and measured quickly."""

import time

import pytest

from core.teaching.bugs import new_state
from core.training import estimate
from core.training.estimate import seconds_to_train
from core.training.loop import StepEvent, train


def test_the_estimate_is_about_the_real_training_time(tiny):
    preset = tiny.with_changes({"training.steps": 100, "training.evaluate_every": 100})
    estimated = seconds_to_train(preset)
    started = time.perf_counter()
    list(train(new_state(preset)))
    measured = time.perf_counter() - started
    assert measured / 8 < estimated < measured * 4


def test_twice_the_steps_take_twice_the_time(tiny, monkeypatch):
    monkeypatch.setattr(estimate, "_seconds_per_step", lambda preset, pairs: 0.5)
    assert seconds_to_train(tiny) == pytest.approx(4.0)
    assert seconds_to_train(tiny.with_changes({"training.steps": 16})) == pytest.approx(8.0)


@pytest.mark.parametrize(("by_length", "expected"), [(False, 0.01), (True, 0.02)])
def test_a_step_counts_as_the_fastest_or_by_length_as_the_mean(tiny, monkeypatch, by_length, expected):
    durations = [0.3] + [0.01, 0.03] * 8  # the first warms up
    clock = [0.0]

    def steps(state):
        for step, seconds in enumerate(durations, start=1):
            clock[0] += seconds
            yield StepEvent(step, 1.0, 0.1, 1.0, 100.0)

    monkeypatch.setattr(estimate, "train", steps)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    preset = tiny.with_changes({"training.group_by_length": by_length, "training.steps": 100})
    assert seconds_to_train(preset) == pytest.approx(100 * expected)


def test_a_large_batch_is_measured_smaller_and_scaled_up(tiny, monkeypatch):
    measured = []
    monkeypatch.setattr(estimate, "_seconds_per_step", lambda preset, pairs: measured.append(preset) or 0.5)
    monkeypatch.setattr(estimate, "_MEASURED_OPERATIONS", 1e7)
    seconds = seconds_to_train(tiny.with_changes({"training.batch_size": 4096}))
    assert measured[0].training.batch_size < 4096
    assert seconds == pytest.approx(0.5 * 8 * 4096 / measured[0].training.batch_size)


def test_a_model_too_large_to_measure_has_no_estimate(tiny, monkeypatch):
    monkeypatch.setattr(estimate, "_MEASURED_OPERATIONS", 1.0)
    assert seconds_to_train(tiny) is None


@pytest.mark.parametrize("steps", [1, 3])
def test_very_short_runs_have_an_estimate(tiny, steps):
    assert seconds_to_train(tiny.with_changes({"training.steps": steps, "training.warmup_steps": 0})) > 0


def test_a_very_long_run_has_an_estimate(tiny):
    assert seconds_to_train(tiny.with_changes({"training.steps": 1_000_000})) > 0


def test_estimating_a_large_model_takes_seconds_at_most(tiny):
    large = tiny.with_changes({"model.d_model": 256, "model.d_ff": 1024, "training.batch_size": 512})
    started = time.process_time()
    assert seconds_to_train(large) > 0
    assert time.process_time() - started < 8.0


def test_gradient_accumulation_multiplies_the_time(tiny, monkeypatch):
    measured = []
    monkeypatch.setattr(estimate, "_seconds_per_step", lambda preset, pairs: measured.append(preset) or 0.5)
    assert seconds_to_train(tiny.with_changes({"training.gradient_accumulation_steps": 3})) == pytest.approx(12.0)
    assert measured[0].training.gradient_accumulation_steps == 1


def test_scheduled_sampling_is_measured_at_its_slowest_step(tiny, monkeypatch):
    measured = []
    monkeypatch.setattr(estimate, "_seconds_per_step", lambda preset, pairs: measured.append(preset) or 0.5)
    seconds_to_train(
        tiny.with_changes({"training.teacher_forcing_ratio": 0.5, "training.teacher_forcing_schedule": "linear"})
    )
    assert measured[0].training.teacher_forcing_schedule == "constant"
