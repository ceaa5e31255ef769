"""Adam and learning rates by hand, and gradients no longer than allowed."""

import math

import pytest
import torch
from torch.testing import assert_close

from core.evaluation import sequence_loss
from core.optim import Adam, build_optimizer, clip_gradients, learning_rate_at
from core.sections import TrainingConfig
from core.training import new_state


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


# --- Adam -------------------------------------------------------------------------------------------------------


def trained(preset, optimizer_of) -> dict[str, torch.Tensor]:
    """Weights after 100 updates in double precision, in which rounding cannot hide a mistake."""
    state = new_state(preset)
    model = state.model.double().eval()
    optimizer = optimizer_of(model.parameters())
    for step in range(100):
        batch = state.task.sample(8, split="train", generator=state.generator)
        optimizer.zero_grad()
        sequence_loss(model(batch.src, batch.tgt_in)[0], batch.tgt_out).backward()
        optimizer.param_groups[0]["lr"] = 0.01 * (100 - step) / 100
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_adam_by_hand_is_pytorchs_adam_over_100_steps(tiny, tiny_gru, family):
    preset = tiny if family == "transformer" else tiny_gru
    by_hand = trained(preset, lambda parameters: Adam(parameters, lr=0.01))
    reference = trained(preset, lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    start = new_state(preset).model.state_dict()
    assert_close(by_hand, reference, atol=1e-6, rtol=0)
    assert any((by_hand[name] - start[name]).abs().max() > 0.1 for name in start)


def test_the_first_update_of_adam_is_as_long_as_the_learning_rate_whatever_the_gradient():
    made = parameters([1e-3, -1e3])
    Adam(made, lr=0.1).step()
    assert_close(made[0].detach(), torch.tensor([-0.1, 0.1]), atol=1e-5, rtol=0)


def test_adam_leaves_parameters_without_a_gradient_alone_and_keeps_nothing_but_tensors():
    made = [*parameters([1.0, 2.0]), torch.nn.Parameter(torch.ones(3))]
    optimizer = Adam(made, lr=0.1)
    optimizer.step()
    optimizer.step()
    assert (made[1] == 1).all()
    assert set(optimizer.state) == {made[0]}
    assert all(isinstance(value, torch.Tensor) for value in optimizer.state[made[0]].values())
    assert optimizer.state[made[0]]["step"] == 2


def test_the_preset_names_the_optimiser():
    assert type(build_optimizer(config(), parameters([1.0]))) is torch.optim.Adam
    by_hand = build_optimizer(config(optimizer="adam-by-hand"), parameters([1.0]))
    assert type(by_hand) is Adam
    assert by_hand.param_groups[0]["lr"] == 0.8
