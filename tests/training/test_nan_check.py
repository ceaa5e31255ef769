"""A run that becomes NaN or infinite ends, names the first such tensor, and keeps its last checkpoint."""

import math
from itertools import islice

import pytest
import torch

from core.models.hooks import hook_names, hooks
from core.runs import RunFolder
from core.teaching.bugs import new_state
from core.training.loop import EndEvent, EvaluationEvent, StepEvent, train
from core.training.nan_check import all_finite, first_non_finite
from core.training.state import TrainingState
from tests.support.trainings import train_run

WIDEN = "decoder_layers.0.feed_forward.widen"


def set_weight(state: TrainingState, name: str, value: float) -> None:
    with torch.no_grad():
        dict(state.model.named_parameters())[name].view(-1)[0] = value


def end_of(state: TrainingState) -> EndEvent:
    *_, end = train(state)
    assert isinstance(end, EndEvent)
    return end


@pytest.fixture(params=["transformer", "gru"])
def preset(tiny, tiny_gru, request):
    return {"transformer": tiny, "gru": tiny_gru}[request.param]


def test_any_weight_that_is_not_finite_is_named(preset):
    state = new_state(preset)
    next(train(state))
    for name, parameter in state.model.named_parameters():
        index = (1 if "embedding" in name else 0,) + (0,) * (parameter.ndim - 1)  # BOS is in every sequence
        before = parameter[index].item()
        with torch.no_grad():
            parameter[index] = math.nan
        assert f"weight {name} is not finite" in end_of(state).message
        with torch.no_grad():
            parameter[index] = before
    assert [type(event) for event in islice(train(state), 2)] == [StepEvent, StepEvent]


def test_the_message_names_step_tensor_and_the_last_finite_figures(tiny):
    state = new_state(tiny)
    events = list(islice(train(state), 4))  # evaluation 0, steps 1 to 3
    set_weight(state, f"{WIDEN}.weight", math.nan)
    last = events[-1]
    assert end_of(state).message == (
        f"step 4: loss=nan, gradient norm=nan: not finite, so the update was not made; weight {WIDEN}.weight is not "
        f"finite; last finite training loss {last.loss:.4f} and gradient norm {last.gradient_norm:.4f} at step 3; "
        f"last validation loss {events[0].evaluation.loss:.4f} after step 0. "
        "Resume continues from the last save; if it diverges again, lower training.learning_rate"
    )


def test_an_activation_that_overflows_is_named_by_its_hook_point(tiny):
    state = new_state(tiny)
    with torch.no_grad():
        state.model.decoder_layers[0].feed_forward.widen.weight.fill_(3e38)  # finite, but its product is not
        state.model.decoder_layers[0].feed_forward.narrow.weight.fill_(3e38)
    message = end_of(state).message
    assert "decoder_layers.0.feed_forward.hook_post is the first tensor that is not finite" in message


def test_infinite_logits_are_named_by_their_hook_point(tiny):
    state = new_state(tiny)
    with torch.no_grad():
        state.model.output.weight.fill_(3e38)
    assert "output.hook_logits is the first tensor that is not finite" in end_of(state).message


def test_a_non_finite_gradient_is_named_by_the_first_on_the_backward_pass(tiny):
    state = new_state(tiny)
    state.model.decoder_layers[0].feed_forward.widen.register_full_backward_hook(
        lambda module, inputs, outputs: tuple(each * math.nan for each in inputs)
    )
    end = end_of(state)
    assert "loss=nan" not in end.message
    # Everything before widen gets the NaN; of that, the norm of the cross-attention comes last in the forward pass.
    assert "the gradient of decoder_layers.0.norm_cross.bias is the first that is not finite" in end.message


def test_finite_gradients_with_an_infinite_norm_name_the_largest(tiny):
    state = new_state(tiny)
    with torch.no_grad():
        state.model.output.weight.mul_(1e25)
    end = end_of(state)
    assert end.reason == "diverged"
    assert "gradient norm=inf" in end.message
    assert "weights, activations and gradients are finite by themselves; the largest gradient is" in end.message


def test_the_search_repeats_the_random_draws_and_restores_the_generator(tiny, monkeypatch):
    """With dropout and partial forcing, the second forward pass must equal the first."""
    preset = tiny.with_changes(
        {"model.dropout": 0.3, "training.teacher_forcing_ratio": 0.5, "training.gradient_accumulation_steps": 2}
    )
    seen, plain = [], new_state(preset)
    state = new_state(preset)

    def search(model, compute_losses) -> str:
        seen.extend(loss.item() for loss in compute_losses())
        return "here"

    monkeypatch.setattr("core.training.loop.first_non_finite", search)
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: math.inf)
    assert "; here" in end_of(state).message
    monkeypatch.undo()
    event = next(event for event in train(plain) if isinstance(event, StepEvent))
    assert sum(seen) == event.loss
    assert torch.equal(state.generator.get_state(), plain.generator.get_state())


@pytest.mark.parametrize("family", ["transformer", "decoder-only", "encoder-only", "gru"])
def test_every_hook_point_is_checked(tiny, family):
    state = new_state(tiny.with_changes({"model.family": family, "model.max_seq_len": 32}))
    batch = state.task.sample(4, split="train", generator=state.generator)
    for parameter in state.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    reached: list[str] = []

    def compute_losses() -> list[torch.Tensor]:
        return [state.model(batch.src, batch.tgt_in)]

    with hooks({name: lambda tensor, name=name: reached.append(name) for name in hook_names(state.model)}):
        assert first_non_finite(state.model, compute_losses).startswith("weights, activations and gradients are finite")
    assert len(set(reached)) > 5
    for name in dict.fromkeys(reached):
        if name.endswith("hook_mask"):  # a boolean mask is always finite
            continue
        with hooks({name: lambda tensor: tensor * math.nan}):
            assert first_non_finite(state.model, compute_losses) == f"{name} is the first tensor that is not finite"


@pytest.mark.parametrize("optimizer", ["adam", "adam-by-hand"])
def test_the_highest_learning_rate_either_trains_or_ends_with_a_message(preset, optimizer):
    unstable = {"learning_rate": 1.0, "schedule": "constant", "warmup_steps": 0, "steps": 20, "optimizer": optimizer}
    unstable |= {"evaluate_every": 20}
    state = new_state(preset.with_changes({f"training.{key}": value for key, value in unstable.items()}))
    for event in train(state):
        if isinstance(event, StepEvent):
            assert math.isfinite(event.loss)
            assert math.isfinite(event.gradient_norm)
        elif isinstance(event, EvaluationEvent):
            assert not math.isnan(event.evaluation.loss)
        assert all_finite(state.model)
    assert event.reason == "finished" or "not finite" in event.message


# --- checkpoints ------------------------------------------------------------------------------------------------


def test_the_last_good_checkpoint_is_kept(tiny, root, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 0.0)
    folder = RunFolder.create(root, tiny, name="a")
    state, good = new_state(tiny), {}

    def poison(event) -> None:
        if event.step == 6:
            good.update(best=folder.best.read_bytes(), last=folder.last.read_bytes())
            set_weight(state, f"{WIDEN}.weight", math.inf)

    info = train_run(folder, state, on_event=poison)
    assert (info.status, info.step) == ("failed", 6)
    assert (
        f"step 7: loss=nan, gradient norm=nan: not finite, so the update was not made; weight {WIDEN}" in info.message
    )
    assert {"best": folder.best.read_bytes(), "last": folder.last.read_bytes()} == good
