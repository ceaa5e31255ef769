"""The loop: its events, its pauses, its randomness, and what it does when numbers go wrong."""

import math
from collections.abc import Callable, Iterable
from itertools import islice

import pytest
import torch
from torch.testing import assert_close

from core.runs.training_state import load_state
from core.tasks import build_task, fixed_pairs
from core.training.checkpoint import save_state
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent, train
from core.training.schedules import learning_rate_at
from core.training.state import TrainingState, new_state


def essence(events: Iterable[Event]) -> list[tuple]:
    """Everything in events that must repeat: all but the speed."""
    return [
        (event.step, event.loss, event.learning_rate, event.gradient_norm)
        if isinstance(event, StepEvent)
        else (event.step, event.evaluation, event.is_best, event.train_loss)
        if isinstance(event, EvaluationEvent)
        else (event.step, event.reason, event.message)
        for event in events
    ]


def order(events: Iterable[Event]) -> list[str]:
    names = {StepEvent: "step", EvaluationEvent: "evaluation", EndEvent: "end"}
    return [f"{names[type(event)]} {event.step}" for event in events]


def assert_same(one: TrainingState, other: TrainingState) -> None:
    """Bit for bit: weights, optimiser, generator, counters."""
    assert_close(dict(one.model.state_dict()), dict(other.model.state_dict()), atol=0, rtol=0)
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert_close(one.optimizer.state[mine], other.optimizer.state[theirs], atol=0, rtol=0)
    assert torch.equal(one.generator.get_state(), other.generator.get_state())
    for name in ("step", "evaluated_step", "best_loss", "best_step", "last_evaluation", "loss_sum", "sequences_seen"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.fixture(scope="module", params=[0, 20], ids=["fresh", "epochs"])
def dropping(tiny, request):
    """A preset with dropout, so that the generator's state matters; its epochs, if any, end within a batch."""
    return tiny.with_changes({"model.dropout": 0.2, "training.training_sequences": request.param})


@pytest.fixture(scope="module")
def straight(dropping) -> tuple[list[Event], TrainingState]:
    """A run that was never paused."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    state = new_state(dropping)
    events = list(train(state))
    torch.set_num_threads(threads)
    return events, state


# --- events -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "every", "evaluated"),
    [(8, 4, [0, 4, 8]), (8, 3, [0, 3, 6, 8]), (3, 1, [0, 1, 2, 3]), (3, 100, [0, 3]), (1, 1, [0, 1])],
)
def test_events_come_in_order_and_evaluations_at_the_start_every_k_and_the_end(tiny, steps, every, evaluated):
    changes = {"training.steps": steps, "training.evaluate_every": every, "training.warmup_steps": 0}
    events = list(train(new_state(tiny.with_changes(changes))))
    expected = []
    for step in range(steps + 1):
        expected += [f"step {step}"] if step else []
        expected += [f"evaluation {step}"] if step in evaluated else []
    assert order(events) == [*expected, f"end {steps}"]
    assert events[-1] == EndEvent(steps, "finished")


def test_events_tell_the_truth_about_the_state(tiny):
    restless = {"training.learning_rate": 1.0, "training.schedule": "constant", "training.evaluate_every": 1}
    preset = tiny.with_changes(restless)
    state, best, verdicts = new_state(preset), math.inf, set()
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
            verdicts.add(event.is_best)
            best = min(best, event.evaluation.loss)
            assert state.last_evaluation == event.evaluation
            assert state.evaluated_step == event.step
            assert state.best_loss == best
            assert (state.best_step == event.step) == event.is_best
    assert state.seconds > 0
    assert verdicts == {True, False}


def test_the_updates_are_those_of_plain_adam_with_clipping(tiny):
    state, plain = new_state(tiny), new_state(tiny)
    for _ in islice(train(state), 5):
        pass
    optimizer = torch.optim.Adam(plain.model.parameters())
    for step in range(1, state.step + 1):
        batch = plain.task.sample(8, split="train", generator=plain.generator)
        logits, _ = plain.model(batch.src, batch.tgt[:, :-1])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.tgt[:, 1:], ignore_index=0).backward()
        torch.nn.utils.clip_grad_norm_(plain.model.parameters(), tiny.training.max_gradient_norm)
        optimizer.param_groups[0]["lr"] = learning_rate_at(step, tiny.training)
        optimizer.step()
    assert state.step == 4
    for name, weight in plain.model.state_dict().items():
        if not name.endswith("w_k.bias"):  # their gradient is zero but for rounding, which Adam blows up
            assert_close(state.model.state_dict()[name], weight, atol=1e-5, rtol=1e-4)


def test_nothing_is_ever_yielded_in_evaluation_mode_or_without_gradients(dropping):
    state = new_state(dropping)
    for _ in train(state):
        assert state.model.training
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_training_makes_the_loss_fall(tiny):
    changes = {"training.steps": 60, "training.evaluate_every": 60, "training.batch_size": 32}
    events = [event for event in train(new_state(tiny.with_changes(changes))) if isinstance(event, EvaluationEvent)]
    assert events[-1].evaluation.loss < events[0].evaluation.loss - 0.2


# --- pausing and resuming ---------------------------------------------------------------------------------------


def test_the_consumer_may_stop_after_any_event_and_go_on_later(dropping, straight):
    expected, finished = straight
    for count in range(len(expected)):
        state = new_state(dropping)
        events = list(islice(train(state), count))
        torch.rand(3)  # what others draw meanwhile changes nothing
        events += train(state)
        assert essence(events) == essence(expected), f"paused after {count} events"
    assert_same(state, finished)


@pytest.mark.parametrize("pause", ["step 3", "step 4", "evaluation 4", "step 5", "evaluation 0", "step 8"])
def test_a_run_saved_and_loaded_continues_bit_for_bit(dropping, straight, tmp_path, pause):
    expected, finished = straight
    state = new_state(dropping)
    count = order(expected).index(pause) + 1
    events = list(islice(train(state), count))
    save_state(tmp_path / "last.safetensors", state)
    loaded = load_state(tmp_path / "last.safetensors", dropping)
    assert_same_but_optimizer_of_a_fresh_run(loaded, state)
    events += train(loaded)
    assert essence(events) == essence(expected)
    assert_same(loaded, finished)
    assert loaded.seconds > state.seconds or count == len(expected)


def assert_same_but_optimizer_of_a_fresh_run(loaded: TrainingState, state: TrainingState) -> None:
    for optimizer in (loaded.optimizer, state.optimizer):
        assert bool(optimizer.state) == (state.step > 0)
    assert_same(loaded, state)


def test_training_a_finished_run_again_only_says_that_it_is_finished(dropping, straight):
    _, finished = straight
    assert list(train(finished)) == [EndEvent(8, "finished")]


# --- randomness -------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(dropping, straight):
    expected, _ = straight
    assert essence(train(new_state(dropping))) == essence(expected)
    other = list(train(new_state(dropping.with_changes({"training.seed": 1}))))
    losses = [[event.loss for event in events if isinstance(event, StepEvent)] for events in (expected, other)]
    assert all(mine != theirs for mine, theirs in zip(*losses, strict=True))


def test_two_interleaved_runs_give_what_they_give_alone(dropping, straight):
    second_preset = dropping.with_changes({"training.seed": 1})
    alone = essence(straight[0]), essence(train(new_state(second_preset)))
    first, second = train(new_state(dropping)), train(new_state(second_preset))
    pairs = list(zip(first, second, strict=True))
    assert (essence(pair[0] for pair in pairs), essence(pair[1] for pair in pairs)) == alone


def test_a_run_neither_depends_on_nor_changes_the_global_generator(dropping, straight):
    torch.manual_seed(99)  # PyTorch draws from it for weights that are then drawn anew; it must not show
    state, events = new_state(dropping), []
    before = torch.get_rng_state()
    for event in train(state):
        events.append(event)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(event.step + 17)  # and others may do with it what they like
        before = torch.get_rng_state()
    assert essence(events) == essence(straight[0])


# --- data -------------------------------------------------------------------------------------------------------


def test_training_never_sees_held_out_sequences(tiny, monkeypatch):
    state = new_state(tiny.with_changes({"training.batch_size": 200}))
    seen: set[tuple[int, ...]] = set()
    forward = state.model.forward
    # (evaluation goes through the same model, but in evaluation mode)
    monkeypatch.setattr(
        state.model, "forward", lambda src, tgt: note(src, seen if state.model.training else set()) or forward(src, tgt)
    )
    list(train(state))
    assert len(seen) > 800
    for split in ("validation", "test"):
        pairs = fixed_pairs(state.task, 500, split=split)
        assert not seen & {tuple(row) for row in pairs.src.tolist()}


def note(src: torch.Tensor, seen: set) -> None:
    seen.update(tuple(row) for row in src.tolist())


def test_held_out_pairs_are_the_same_for_every_run_of_a_task(tiny):
    task, again = build_task(tiny.task), build_task(tiny.task)
    torch.manual_seed(5)
    first = fixed_pairs(task, 50, split="validation")
    torch.manual_seed(6)
    assert torch.equal(first.src, fixed_pairs(again, 50, split="validation").src)
    assert torch.equal(first.src[:20], fixed_pairs(again, 50, split="validation").src[:20])
    assert len(first.src.unique(dim=0)) == 50


# --- numbers that go wrong --------------------------------------------------------------------------------------


def poison(weight: float) -> Callable[[TrainingState], None]:
    def change(state: TrainingState) -> None:
        with torch.no_grad():
            state.model.output.weight[5, 0] = weight

    return change


@pytest.mark.parametrize("weight", [math.nan, math.inf])
@pytest.mark.parametrize("after", [0, 3])
def test_a_run_that_diverges_ends_there_with_its_weights_unchanged(tiny, weight, after):
    state = new_state(tiny)
    loop, events = train(state), []
    for event in loop:
        events.append(event)
        if event.step == after and not isinstance(event, EndEvent):
            poison(weight)(state)
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


def test_an_exploding_gradient_with_a_finite_loss_ends_the_run_too(tiny, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: math.inf)
    state = new_state(tiny)
    before = {name: tensor.clone() for name, tensor in state.model.state_dict().items()}
    assert order(train(state)) == ["evaluation 0", "end 0"]
    assert_close(dict(state.model.state_dict()), before, atol=0, rtol=0)
