"""A run whose numbers stop being finite ends, says where they did first, and keeps what was good."""

import math
from itertools import islice

import pytest
import torch

from core.runs import RunFolder
from core.runs.recorder import train_recorded
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import EndEvent, EvaluationEvent, StepEvent, train
from core.training.nan_check import all_finite, first_non_finite
from core.training.state import TrainingState

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


def test_a_poisoned_weight_is_named_wherever_it_is(preset):
    state = new_state(preset)
    next(train(state))
    for name, parameter in state.model.named_parameters():
        place = (1 if "embedding" in name else 0,) + (0,) * (parameter.ndim - 1)  # of BOS, which is in every sequence
        before = parameter[place].item()
        with torch.no_grad():
            parameter[place] = math.nan
        assert f"weight {name} is not finite" in end_of(state).message
        with torch.no_grad():
            parameter[place] = before
    assert [type(event) for event in islice(train(state), 2)] == [StepEvent, StepEvent]


def test_the_message_names_step_place_and_the_last_finite_figures(tiny):
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


def test_an_activation_that_overflows_is_named_by_the_innermost_layer(tiny):
    state = new_state(tiny)
    with torch.no_grad():
        state.model.decoder_layers[0].feed_forward.widen.weight.fill_(3e38)  # finite, but not what comes of it
        state.model.decoder_layers[0].feed_forward.narrow.weight.fill_(3e38)
    message = end_of(state).message
    assert f"the output of {WIDEN} is the first that is not finite" in message


def test_huge_logits_are_named(tiny):
    state = new_state(tiny)
    with torch.no_grad():
        state.model.output.weight.fill_(3e38)
    assert "the output of output is the first that is not finite" in end_of(state).message


def test_a_gradient_that_is_not_finite_is_named_by_the_last_layer_on_the_way_forward(tiny):
    state = new_state(tiny)
    state.model.decoder_layers[0].feed_forward.widen.register_full_backward_hook(
        lambda module, inputs, outputs: tuple(each * math.nan for each in inputs)
    )
    end = end_of(state)
    assert "loss=nan" not in end.message
    # What comes before widen on the way forward gets the NaN; the norm of the cross-attention is the first of it.
    assert "the gradient of decoder_layers.0.norm_cross.bias is the first that is not finite" in end.message


def test_finite_gradients_with_a_norm_that_is_not_are_told_by_the_largest(tiny):
    state = new_state(tiny)
    with torch.no_grad():
        state.model.output.weight.mul_(1e25)
    end = end_of(state)
    assert end.reason == "diverged"
    assert "gradient norm=inf" in end.message
    assert "weights, activations and gradients are finite by themselves; the largest gradient is" in end.message


def test_the_search_draws_the_same_numbers_and_leaves_the_generator_alone(tiny, monkeypatch):
    """With dropout and its own choices, a second forward pass must be the first one again."""
    preset = tiny.with_changes(
        {"model.dropout": 0.3, "training.teacher_forcing_ratio": 0.5, "training.gradient_accumulation_steps": 2}
    )
    seen, plain = [], new_state(preset)
    state = new_state(preset)

    def search(model, run) -> str:
        seen.extend(loss.item() for loss in run())
        return "here"

    monkeypatch.setattr("core.training.loop.first_non_finite", search)
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: math.inf)
    assert "; here" in end_of(state).message
    monkeypatch.undo()
    event = next(event for event in train(plain) if isinstance(event, StepEvent))
    assert sum(seen) == event.loss
    assert torch.equal(state.generator.get_state(), plain.generator.get_state())


def test_hooks_are_gone_after_a_search(tiny):
    state = new_state(tiny)
    batch = state.task.sample(4, split="train", generator=state.generator)
    for parameter in state.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert first_non_finite(state.model, lambda: state.model(batch.src, batch.tgt_in)).startswith("weights, activ")
    assert not any(module._forward_hooks for module in state.model.modules())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adam-by-hand"])
def test_the_highest_learning_rate_either_trains_or_ends_in_words(preset, optimizer):
    restless = {"learning_rate": 1.0, "schedule": "constant", "warmup_steps": 0, "steps": 40, "optimizer": optimizer}
    state = new_state(preset.with_changes({f"training.{key}": value for key, value in restless.items()}))
    for event in train(state):
        if isinstance(event, StepEvent):
            assert math.isfinite(event.loss)
            assert math.isfinite(event.gradient_norm)
        elif isinstance(event, EvaluationEvent):
            assert not math.isnan(event.evaluation.loss)
        assert all_finite(state.model)
    assert event.reason == "finished" or "not finite" in event.message


# --- what is kept -----------------------------------------------------------------------------------------------


def test_the_last_good_checkpoint_stays(tiny, root, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.SECONDS_BETWEEN_SAVES", 0.0)
    folder = RunFolder.create(root, tiny, name="a")
    state, good = new_state(tiny), {}

    def poison(event) -> None:
        if event.step == 6:
            good.update(best=folder.best.read_bytes(), last=folder.last.read_bytes())
            set_weight(state, f"{WIDEN}.weight", math.inf)

    info = train_recorded(folder, state, History(8), should_stop=lambda: False, on_event=poison)
    assert (info.status, info.step) == ("failed", 6)
    assert (
        f"step 7: loss=nan, gradient norm=nan: not finite, so the update was not made; weight {WIDEN}" in info.message
    )
    assert {"best": folder.best.read_bytes(), "last": folder.last.read_bytes()} == good
