"""Learning rate and teacher forcing schedules at their landmarks, by hand and compared with PyTorch's."""

import math

import pytest
import torch

from core.config import ConfigError
from core.config.training import TrainingConfig
from core.training.schedules import learning_rate_at, teacher_forcing_ratio_at


def config(**changes) -> TrainingConfig:
    return TrainingConfig(**({"steps": 10, "warmup_steps": 4, "learning_rate": 0.8} | changes))


def test_the_linear_schedule_rises_to_its_peak_and_decays_towards_zero():
    rates = [learning_rate_at(step, config()) for step in range(1, 11)]
    # 4 steps up, then 6 of 7 equal steps down; the seventh would reach zero.
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8] + [0.8 * left / 7 for left in (6, 5, 4, 3, 2, 1)])


def test_the_constant_schedule_stays_at_its_peak_after_warm_up():
    rates = [learning_rate_at(step, config(schedule="constant")) for step in range(1, 11)]
    assert rates == pytest.approx([0.2, 0.4, 0.6] + [0.8] * 7)


def test_without_warm_up_the_first_step_is_the_largest():
    rates = [learning_rate_at(step, config(warmup_steps=0)) for step in range(1, 11)]
    assert rates == pytest.approx([0.8 * left / 11 for left in range(10, 0, -1)])
    assert learning_rate_at(1, config(warmup_steps=0, schedule="constant")) == pytest.approx(0.8)


def test_a_warm_up_as_long_as_the_training_only_rises():
    rates = [learning_rate_at(step, config(warmup_steps=10)) for step in range(1, 11)]
    assert rates == pytest.approx([0.08 * step for step in range(1, 11)])


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_polynomial_decay_equals_pytorchs(power):
    settings = config(steps=20, warmup_steps=0, schedule="polynomial", decay_power=power)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.8)
    theirs = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=21, power=power)
    for step in range(1, 21):
        optimizer.step()
        theirs.step()
        assert learning_rate_at(step, settings) == pytest.approx(theirs.get_last_lr()[0])


def test_the_power_needs_the_polynomial_decay(tiny):
    with pytest.raises(ConfigError, match=r"training\.decay_power=2\.0 must be 1 with training\.schedule='linear'"):
        tiny.with_changes({"training.decay_power": 2.0})


def test_the_cosine_schedule_is_at_half_its_peak_half_way_and_steepest_there():
    settings = config(steps=103, warmup_steps=4, schedule="cosine")
    rates = {step: learning_rate_at(step, settings) for step in range(1, 104)}
    assert rates[2] == pytest.approx(0.4)
    assert rates[4] == 0.8
    assert rates[54] == pytest.approx(0.4)  # half of the 100 steps that would reach zero
    assert rates[29] == pytest.approx(0.8 * (1 + math.cos(math.pi / 4)) / 2)
    falls = [rates[step] - rates[step + 1] for step in range(4, 103)]
    assert min(falls) > 0
    assert max(falls) == pytest.approx(falls[50], rel=1e-3)
    assert 0 < rates[103] < 0.8 * 0.0003


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (64, 50), (32, 1)])
def test_inverse_square_root_equals_the_paper(d_model, warmup):
    settings = TrainingConfig(
        steps=10_000, schedule="inverse-sqrt", warmup_steps=warmup, learning_rate=(d_model * warmup) ** -0.5
    )
    for step in (1, 2, warmup, warmup + 1, 2 * warmup, 10_000):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate_at(step, settings) == pytest.approx(paper)
    assert learning_rate_at(warmup, settings) == pytest.approx(settings.learning_rate)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 10, 101, 1000])
def test_one_cycle_equals_pytorchs(steps):
    settings = config(steps=steps, schedule="one-cycle", warmup_steps=0)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    reference = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.8, total_steps=steps, cycle_momentum=False)
    for step in range(1, steps + 1):
        assert learning_rate_at(step, settings) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9), step
        optimizer.step()
        if step < steps:
            reference.step()


@pytest.mark.parametrize(
    ("schedule", "warmup", "message"),
    [
        ("one-cycle", 1, "training.warmup_steps=1 must be 0 with training.schedule='one-cycle'"),
        ("inverse-sqrt", 0, "training.warmup_steps=0 must be at least 1 with training.schedule='inverse-sqrt'"),
        ("cosine", 9, "training.warmup_steps=9 must not be above training.steps=8"),
        ("inverse-sqrt", 9, "training.warmup_steps=9 must not be above training.steps=8"),
    ],
)
def test_a_warm_up_that_the_schedule_does_not_allow_is_refused(tiny, schedule, warmup, message):
    with pytest.raises(ConfigError) as caught:
        tiny.with_changes({"training.schedule": schedule, "training.warmup_steps": warmup})
    assert message in str(caught.value)


# --- teacher forcing ratio --------------------------------------------------------------------------------------


def test_the_teacher_forcing_ratio_is_constant_or_decays_linearly_from_one():
    constant, linear = (
        config(steps=5, teacher_forcing_ratio=0.2, teacher_forcing_schedule=schedule)
        for schedule in ("constant", "linear")
    )
    assert [teacher_forcing_ratio_at(step, constant) for step in range(1, 6)] == [0.2] * 5
    assert [teacher_forcing_ratio_at(step, linear) for step in range(1, 6)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_a_single_step_is_fully_forced():
    settings = config(steps=1, warmup_steps=0, teacher_forcing_ratio=0.0, teacher_forcing_schedule="linear")
    assert teacher_forcing_ratio_at(1, settings) == 1
