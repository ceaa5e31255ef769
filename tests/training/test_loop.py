"""The training loop: its events, its randomness, its data, and how it ends when numbers are not finite."""

import math
from collections.abc import Callable, Iterable
from itertools import islice

import pytest
import torch
from torch.testing import assert_close

from core.tasks import build_task, fixed_pairs
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent, train
from core.training.schedules import learning_rate_at
from core.training.state import TrainingState, new_state
from tests.support.training_events import comparable


def names_of(events: Iterable[Event]) -> list[str]:
    names = {StepEvent: "step", EvaluationEvent: "evaluation", EndEvent: "end"}
    return [f"{names[type(event)]} {event.step}" for event in events]


OFF = {"training.free_running_validation": False}


@pytest.fixture(scope="module", params=[0, 20], ids=["fresh", "epochs"])
def with_dropout(tiny, request):
    """A preset with dropout, so that the generator's state matters; an epoch, if any, ends within a batch."""
    return tiny.with_changes({"model.dropout": 0.2, "training.training_sequences": request.param})


@pytest.fixture(scope="module")
def finished(with_dropout) -> tuple[list[Event], TrainingState]:
    """Events and final state of a run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    state = new_state(with_dropout)
    events = list(train(state))
    torch.set_num_threads(threads)
    return events, state


# --- events -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "every", "evaluated"),
    [(8, 4, [0, 4, 8]), (8, 3, [0, 3, 6, 8]), (3, 1, [0, 1, 2, 3]), (3, 100, [0, 3]), (1, 1, [0, 1])],
)
def test_evaluations_come_at_the_start_every_k_steps_and_at_the_end(tiny, steps, every, evaluated):
    changes = {"training.steps": steps, "training.evaluate_every": every, "training.warmup_steps": 0}
    events = list(train(new_state(tiny.with_changes(changes))))
    expected = []
    for step in range(steps + 1):
        expected += [f"step {step}"] if step else []
        expected += [f"evaluation {step}"] if step in evaluated else []
    assert names_of(events) == [*expected, f"end {steps}"]
    assert events[-1] == EndEvent(steps, "finished")


def test_the_best_weights_have_the_lowest_free_running_loss_where_it_is_measured(tiny, tiny_gru):
    for preset in (tiny, tiny_gru):
        changes = {
            "training.free_running_validation": True,
            "training.evaluate_every": 1,
            "training.learning_rate": 0.1,
        }
        state, plain = new_state(preset.with_changes(changes)), new_state(preset.with_changes(changes | OFF))
        events = [event for event in train(state) if isinstance(event, EvaluationEvent)]
        others = [event for event in train(plain) if isinstance(event, EvaluationEvent)]
        losses = [event.evaluation.free_running_loss for event in events]
        assert [event.step for event in events if event.is_best][-1] == losses.index(min(losses)) == state.best_step
        assert state.best_loss == min(losses)
        assert [event.evaluation.loss for event in events] == [event.evaluation.loss for event in others]
        assert {event.evaluation.free_running_loss for event in others} == {None}


def test_events_agree_with_the_state(tiny):
    unstable = {"training.learning_rate": 1.0, "training.schedule": "constant", "training.evaluate_every": 1}
    preset = tiny.with_changes(unstable)
    state, best, seen_is_best = new_state(preset), math.inf, set()
    for event in train(state):
        assert event.step == state.step
        assert state.sequences_seen == state.step * 8
        if isinstance(event, StepEvent):
            assert event.learning_rate == learning_rate_at(event.step, preset.training)
            assert all(group["lr"] == event.learning_rate for group in state.optimizer.param_groups)
            assert event.tokens_per_second > 0
            assert event.gradient_norm > 0
        if isinstance(event, EvaluationEvent):
            assert event.evaluation.sequences == 16
            assert event.is_best == (event.evaluation.loss < best)
            seen_is_best.add(event.is_best)
            best = min(best, event.evaluation.loss)
            assert state.last_evaluation == event.evaluation
            assert state.evaluated_step == event.step
            assert state.best_loss == best
            assert (state.best_step == event.step) == event.is_best
    assert state.seconds > 0
    assert seen_is_best == {True, False}


def test_updates_equal_those_of_plain_adam_with_clipping(tiny):
    state, plain = new_state(tiny), new_state(tiny)
    for _ in islice(train(state), 5):
        pass
    optimizer = torch.optim.Adam(plain.model.parameters())
    for step in range(1, state.step + 1):
        batch = plain.task.sample(8, split="train", generator=plain.generator)
        logits = plain.model(batch.src, batch.tgt[:, :-1])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.tgt[:, 1:], ignore_index=0).backward()
        torch.nn.utils.clip_grad_norm_(plain.model.parameters(), tiny.training.max_gradient_norm)
        optimizer.param_groups[0]["lr"] = learning_rate_at(step, tiny.training)
        optimizer.step()
    assert state.step == 4
    for name, weight in plain.model.state_dict().items():
        if not name.endswith("w_k.bias"):  # their gradient is zero but for rounding, which Adam magnifies
            assert_close(state.model.state_dict()[name], weight, atol=1e-5, rtol=1e-4)


def test_nothing_is_yielded_in_evaluation_mode_or_without_gradients(with_dropout):
    state = new_state(with_dropout)
    for _ in train(state):
        assert state.model.training
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_a_run_trains_where_the_caller_has_turned_gradients_off(with_dropout, finished):
    with torch.no_grad():
        events = [(event, torch.is_grad_enabled()) for event in train(new_state(with_dropout))]
    assert comparable(event for event, _ in events) == comparable(finished[0])
    assert not any(is_enabled for _, is_enabled in events)


def test_training_a_finished_run_yields_only_its_end(finished):
    _, state = finished
    assert list(train(state)) == [EndEvent(8, "finished")]


# --- randomness -------------------------------------------------------------------------------------------------


def test_a_seed_repeats_the_run_and_another_gives_another(with_dropout, finished):
    expected, _ = finished
    assert comparable(train(new_state(with_dropout))) == comparable(expected)
    other = list(train(new_state(with_dropout.with_changes({"training.seed": 1}))))
    losses = [[event.loss for event in events if isinstance(event, StepEvent)] for events in (expected, other)]
    assert all(mine != theirs for mine, theirs in zip(*losses, strict=True))


def test_two_interleaved_runs_equal_each_alone(with_dropout, finished):
    second_preset = with_dropout.with_changes({"training.seed": 1})
    alone = comparable(finished[0]), comparable(train(new_state(second_preset)))
    first, second = train(new_state(with_dropout)), train(new_state(second_preset))
    pairs = list(zip(first, second, strict=True))
    assert (comparable(pair[0] for pair in pairs), comparable(pair[1] for pair in pairs)) == alone


def test_a_run_neither_depends_on_nor_changes_the_global_generator(with_dropout, finished):
    torch.manual_seed(99)  # PyTorch draws initial weights from it, which the model then draws again
    state, events = new_state(with_dropout), []
    before = torch.get_rng_state()
    for event in train(state):
        events.append(event)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(event.step + 17)  # other code may change it at any time
        before = torch.get_rng_state()
    assert comparable(events) == comparable(finished[0])


# --- data -------------------------------------------------------------------------------------------------------


def test_training_never_sees_held_out_sequences(tiny, monkeypatch):
    state = new_state(tiny.with_changes({"training.batch_size": 200}))
    seen: set[tuple[int, ...]] = set()
    forward = state.model.forward

    def recording_forward(src, *args):
        if state.model.training:  # evaluation uses the same model, in evaluation mode
            seen.update(tuple(row) for row in src.tolist())
        return forward(src, *args)

    monkeypatch.setattr(state.model, "forward", recording_forward)
    list(train(state))
    assert len(seen) > 800
    for split in ("validation", "test"):
        pairs = fixed_pairs(state.task, 500, split=split)
        assert not seen & {tuple(row) for row in pairs.src.tolist()}


def test_held_out_pairs_are_the_same_for_every_run_of_a_task(tiny):
    task, again = build_task(tiny.task), build_task(tiny.task)
    torch.manual_seed(5)
    first = fixed_pairs(task, 50, split="validation")
    torch.manual_seed(6)
    assert torch.equal(first.src, fixed_pairs(again, 50, split="validation").src)
    assert torch.equal(first.src[:20], fixed_pairs(again, 50, split="validation").src[:20])
    assert len(first.src.unique(dim=0)) == 50


# --- numbers that are not finite --------------------------------------------------------------------------------


def set_output_weight(value: float) -> Callable[[TrainingState], None]:
    def change(state: TrainingState) -> None:
        with torch.no_grad():
            state.model.output.weight[5, 0] = value

    return change


@pytest.mark.parametrize(("value", "after"), [(math.nan, 0), (math.inf, 3)])
def test_a_run_that_diverges_ends_with_its_weights_unchanged(tiny, value, after):
    state = new_state(tiny)
    loop, events = train(state), []
    for event in loop:
        events.append(event)
        if event.step == after and not isinstance(event, EndEvent):
            set_output_weight(value)(state)
            before = {name: tensor.clone() for name, tensor in state.model.state_dict().items()}
            break
    events += loop
    end = events[-1]
    assert (end.step, end.reason) == (after, "diverged")
    assert f"step {after + 1}: loss=" in end.message
    assert "not finite, so the update was not made" in end.message
    assert "last validation loss" in end.message
    assert sum(isinstance(event, EndEvent) for event in events) == 1
    assert (state.step, state.sequences_seen) == (after, after * 8)
    assert_close(dict(state.model.state_dict()), before, atol=0, rtol=0, equal_nan=True)


def test_an_infinite_gradient_norm_with_a_finite_loss_ends_the_run_too(tiny, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: math.inf)
    state = new_state(tiny)
    before = {name: tensor.clone() for name, tensor in state.model.state_dict().items()}
    assert names_of(train(state)) == ["evaluation 0", "end 0"]
    assert_close(dict(state.model.state_dict()), before, atol=0, rtol=0)
