"""Learning rates by hand, and gradients no longer than allowed."""

import math

import pytest
import torch
from torch.testing import assert_close

from core.config import TrainingConfig
from core.optim import clip_gradients, learning_rate_at


def config(**changes) -> TrainingConfig:
    return TrainingConfig(**({"steps": 10, "warmup_steps": 4, "learning_rate": 0.8} | changes))


def test_a_linear_schedule_rises_to_its_peak_and_falls_towards_zero():
    rates = [learning_rate_at(step, config()) for step in range(1, 11)]
    # 4 steps up; then 6 of the 7 equal steps down, the seventh of which would reach zero.
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8] + [0.8 * left / 7 for left in (6, 5, 4, 3, 2, 1)])


def test_a_constant_schedule_stays_at_its_peak_after_the_warm_up():
    rates = [learning_rate_at(step, config(schedule="constant")) for step in range(1, 11)]
    assert rates == pytest.approx([0.2, 0.4, 0.6] + [0.8] * 7)


def test_without_warm_up_the_first_step_is_the_largest():
    rates = [learning_rate_at(step, config(warmup_steps=0)) for step in range(1, 11)]
    assert rates == pytest.approx([0.8 * left / 11 for left in range(10, 0, -1)])
    assert learning_rate_at(1, config(warmup_steps=0, schedule="constant")) == pytest.approx(0.8)


def test_a_warm_up_as_long_as_the_training_only_rises():
    rates = [learning_rate_at(step, config(warmup_steps=10)) for step in range(1, 11)]
    assert rates == pytest.approx([0.08 * step for step in range(1, 11)])


@pytest.mark.parametrize("schedule", ["linear", "constant"])
@pytest.mark.parametrize("warmup", [0, 1, 5, 7])
def test_every_rate_is_above_zero_and_at_most_the_peak(schedule, warmup):
    settings = config(steps=7, warmup_steps=warmup, schedule=schedule)
    assert all(0 < learning_rate_at(step, settings) <= 0.8 for step in range(1, 8))


def parameters(*gradients: list[float]) -> list[torch.nn.Parameter]:
    made = []
    for gradient in gradients:
        parameter = torch.nn.Parameter(torch.zeros(len(gradient)))
        parameter.grad = torch.tensor(gradient)
        made.append(parameter)
    return made


def test_long_gradients_are_scaled_together_and_keep_their_direction():
    made = parameters([3.0, 0.0], [0.0, 4.0])
    assert clip_gradients(made, 1.0) == pytest.approx(5.0)
    assert_close(made[0].grad, torch.tensor([0.6, 0.0]), atol=1e-5, rtol=0)
    assert_close(made[1].grad, torch.tensor([0.0, 0.8]), atol=1e-5, rtol=0)


def test_short_gradients_are_left_alone():
    made = parameters([0.3, 0.4])
    assert clip_gradients(made, 1.0) == pytest.approx(0.5)
    assert_close(made[0].grad, torch.tensor([0.3, 0.4]), atol=0, rtol=0)


def test_a_gradient_that_is_not_finite_shows_in_the_norm():
    assert not math.isfinite(clip_gradients(parameters([1.0], [math.nan]), 1.0))
