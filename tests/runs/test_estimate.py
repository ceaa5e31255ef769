"""The estimated training time covers a whole training as the page does it, and is measured quickly."""

import time
from statistics import mean

import pytest
import torch

from core.config import load_preset
from core.runs import RunFolder, estimate
from core.runs.estimate import TrainingTime, estimate_training_time
from core.tasks import fixed_pairs
from core.teaching.bugs import new_state
from core.training.loop import EndEvent, StepEvent
from tests.support.trainings import train_run


def set_costs(monkeypatch, *, update=0.0, per_batch=0.0, per_sequence=0.0, snapshot=0.0, save=0.0) -> None:
    """Replace the measurements; parameters cost nothing to save."""
    monkeypatch.setattr(estimate, "_seconds_per_update", lambda state, **_: update)
    monkeypatch.setattr(
        estimate, "_evaluation_cost", lambda *_: estimate._EvaluationCost(per_batch, per_sequence, 1_000)
    )
    monkeypatch.setattr(estimate, "_seconds_per_snapshot", lambda state, taker: snapshot)
    monkeypatch.setattr(estimate, "_SECONDS_PER_SAVE", save)
    monkeypatch.setattr(estimate, "_BYTES_PER_PARAMETER", 0)


def midpoint(preset) -> float:
    time = estimate_training_time(preset)
    assert time is not None
    assert 0 < time.low < time.midpoint < time.high
    return time.midpoint


def script_updates(monkeypatch, durations: list[float], *, end: str | None = None) -> None:
    """Replace training by updates of these durations, and the clock by one that only they advance."""
    clock = [0.0]

    def train(state):
        for seconds in durations:
            clock[0] += seconds
            state.step += 1
            yield StepEvent(state.step, 1.0, 0.1, 1.0, 100.0)
        if end:
            yield EndEvent(state.step, end)

    monkeypatch.setattr(estimate, "train", train)
    monkeypatch.setattr(time, "thread_time", lambda: clock[0])


def seconds_per_update(preset) -> float | None:
    sequences = preset.sequences_per_step
    return estimate._seconds_per_update(new_state(preset), sequences=sequences)


def test_others_may_go_first_between_updates_without_changing_the_estimate(tiny):
    waits = []
    quick = estimate_training_time(tiny)
    slow = estimate_training_time(tiny, wait_for_others=lambda: waits.append(time.sleep(0.01)))
    assert len(waits) > 10
    assert slow.midpoint < 2 * quick.midpoint  # an update takes 2 ms


def test_a_training_is_measured_with_as_many_threads_as_it_has(tiny, monkeypatch):
    script_updates(monkeypatch, [0.01] * 4)
    monkeypatch.setattr(estimate, "_evaluation_cost", lambda *_: estimate._EvaluationCost(0.0, 0.0, 1_000))
    monkeypatch.setattr(estimate, "_seconds_per_snapshot", lambda state, taker: 0.0)
    before, used = torch.get_num_threads(), []
    estimate_training_time(tiny, threads=before + 1, wait_for_others=lambda: used.append(torch.get_num_threads()))
    assert used == [before, before + 1]  # not between updates: that time would count
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("threads", "clock"), [(1, "of the thread"), (2, "on the wall")])
def test_several_threads_are_measured_with_the_clock_on_the_wall(monkeypatch, threads, clock):
    monkeypatch.setattr(time, "thread_time", lambda: "of the thread")
    monkeypatch.setattr(time, "perf_counter", lambda: "on the wall")
    with estimate._torch_threads(threads):
        assert estimate._now("cpu") == clock


# --- what is counted --------------------------------------------------------------------------------------------


def test_the_estimate_is_about_the_processor_time_of_a_recorded_training(tiny, root):
    preset = tiny.with_changes({"training.steps": 60, "training.evaluate_every": 10})
    estimate_training_time(preset)  # warms up
    estimated = midpoint(preset)
    folder = RunFolder.create(root, preset, name="real")
    started = time.thread_time()
    train_run(folder)
    assert estimated / 3 < time.thread_time() - started < estimated * 3


def test_evaluations_and_snapshots_count_at_every_evaluation_and_saves_every_five_seconds(tiny, monkeypatch):
    preset = tiny.with_changes({"training.steps": 10, "training.evaluate_every": 4, "training.validation_sequences": 5})
    # Evaluations and snapshots after 0, 4, 8 and 10 updates; each evaluates as many training pairs as validation pairs.
    set_costs(monkeypatch, update=1.0)
    assert midpoint(preset) == pytest.approx(10)
    set_costs(monkeypatch, update=1.0, per_sequence=0.1)
    assert midpoint(preset) == pytest.approx(10 + 4 * (5 + 5) * 0.1)
    set_costs(monkeypatch, update=1.0, per_batch=0.5)
    assert midpoint(preset) == pytest.approx(10 + 4 * 2 * 0.5)
    set_costs(monkeypatch, update=1.0, snapshot=0.25)
    assert midpoint(preset) == pytest.approx(10 + 4 * 0.25)
    set_costs(monkeypatch, update=1.0, save=0.5)
    assert midpoint(preset) == pytest.approx(10 + 3 * 0.5)  # two in ten seconds, and one at the end


def test_evaluating_more_often_takes_longer(tiny):
    often = {"training.steps": 100, "training.evaluate_every": 2, "training.validation_sequences": 200}
    assert midpoint(tiny.with_changes(often)) > 1.3 * midpoint(
        tiny.with_changes(often | {"training.evaluate_every": 50})
    )


def test_a_preset_with_a_bug_and_the_shortest_run_have_an_estimate(tiny):
    assert midpoint(tiny.with_bug("learning-rate-too-high")) > 0
    assert midpoint(tiny.with_changes({"training.steps": 1, "training.warmup_steps": 0})) > 0


def test_a_gru_and_the_longest_run_have_an_estimate(tiny_gru):
    assert midpoint(tiny_gru.with_changes({"training.steps": 1_000_000})) > 0


def test_other_runs_can_only_delay_the_end():
    time = TrainingTime(8.0, 12.0)
    assert time.midpoint == 10.0
    assert time.beside(0) == time
    assert time.beside(2) == TrainingTime(8.0, 36.0)


# --- how it is measured -----------------------------------------------------------------------------------------


def test_updates_are_timed_after_the_first_two(tiny, monkeypatch):
    script_updates(monkeypatch, [0.09, 0.09, *[0.01, 0.03] * 8])
    assert seconds_per_update(tiny) == pytest.approx(0.02)


def test_slow_updates_end_the_measurement(tiny, monkeypatch):
    durations = [3.0, 1.5] + [100.0] * 50
    script_updates(monkeypatch, durations)
    assert seconds_per_update(tiny) == pytest.approx(1.5)


def test_a_loss_that_is_not_finite_gives_no_estimate(tiny, monkeypatch):
    script_updates(monkeypatch, [0.1], end="diverged")
    assert estimate_training_time(tiny) is None


def test_all_but_the_optimizer_is_proportional_to_the_sequences(tiny, monkeypatch):
    script_updates(monkeypatch, [0.0, 0.0, *[0.5] * 4])
    monkeypatch.setattr(estimate, "_seconds_per_optimizer_step", lambda state: 0.1)
    assert estimate._seconds_per_update(new_state(tiny), sequences=8 * 3) == pytest.approx(0.1 + 3 * 0.4)
    assert estimate._seconds_per_update(new_state(tiny), sequences=8) == pytest.approx(0.5)


def test_a_large_batch_is_measured_in_part(tiny, monkeypatch):
    measured = []

    def seconds_per_update(state, *, sequences, **_):
        measured.append((state.preset.training, sequences))
        return 0.5

    set_costs(monkeypatch)
    monkeypatch.setattr(estimate, "_seconds_per_update", seconds_per_update)
    monkeypatch.setattr(estimate, "_MEASURED_OPERATIONS", 1e7)
    changes = {"training.batch_size": 4096, "training.gradient_accumulation_steps": 3}
    assert midpoint(tiny.with_changes(changes)) == pytest.approx(8 * 0.5)
    ((training, sequences),) = measured
    assert 0 < training.batch_size < 4096
    assert training.gradient_accumulation_steps == 1
    assert sequences == 3 * 4096


def test_a_model_too_large_to_measure_has_no_estimate(tiny, monkeypatch):
    monkeypatch.setattr(estimate, "_MEASURED_OPERATIONS", 1.0)
    assert estimate_training_time(tiny) is None


def test_a_model_too_large_for_a_snapshot_counts_its_inputs_like_evaluated_ones(tiny, monkeypatch):
    set_costs(monkeypatch, per_sequence=0.01, snapshot=100.0)
    monkeypatch.setattr(estimate, "_EVALUATED_OPERATIONS", 1.0)
    state = new_state(tiny)
    decoded = estimate.SnapshotTaker(state.task, state.model).num_decoded
    assert decoded > 1
    assert midpoint(tiny) == pytest.approx(3 * (16 + 16 + decoded) * 0.01)


def test_scheduled_sampling_is_measured_at_its_slowest_update(tiny):
    linear = {"training.teacher_forcing_ratio": 0.5, "training.teacher_forcing_schedule": "linear"}
    trial = estimate._trial(tiny.with_changes(linear), 8)
    assert (trial.training.teacher_forcing_ratio, trial.training.teacher_forcing_schedule) == (0.5, "constant")


def test_only_part_of_a_large_token_budget_is_timed(tiny, monkeypatch):
    measured = []

    def seconds_per_update(state, *, sequences, **others):
        measured.append((state.preset, sequences))
        return 0.5

    set_costs(monkeypatch)
    monkeypatch.setattr(estimate, "_seconds_per_update", seconds_per_update)
    monkeypatch.setattr(estimate, "_MEASURED_OPERATIONS", 1e7)
    budget = {"training.group_by_length": True, "training.tokens_per_batch": 70_000}
    assert midpoint(tiny.with_changes(budget)) == pytest.approx(8 * 0.5)
    ((preset, sequences),) = measured
    assert 7 <= preset.training.tokens_per_batch < 70_000
    assert preset.training.tokens_per_batch == 7 * preset.sequences_per_batch
    assert sequences == 10_000


def test_the_estimate_grows_with_the_token_budget(tiny, monkeypatch):
    script_updates(monkeypatch, [0.01] * 20)
    monkeypatch.setattr(estimate, "_relative_size", lambda state, numbers: 1.0)
    monkeypatch.setattr(estimate, "_seconds_per_optimizer_step", lambda state: 0.0)
    trial = tiny.with_changes({"training.group_by_length": True, "training.tokens_per_batch": 70})
    assert estimate._seconds_per_update(new_state(trial), sequences=40) == pytest.approx(4 * 0.01)


@pytest.mark.parametrize(("sequences", "tokens"), [(0, 60), (200, 0)])
def test_batches_by_length_are_compared_with_many_others(tiny, sequences, tokens):
    changes = {"training.group_by_length": True, "training.training_sequences": sequences}
    changes["training.tokens_per_batch"] = tokens
    state = new_state(tiny.with_changes(changes))
    sizes = [estimate._relative_size(state, range(number, number + 1)) for number in range(1, 65)]
    assert min(sizes) < (0.95 if tokens else 0.9)
    assert max(sizes) > (1 if tokens else 1.1)
    assert mean(sizes) == pytest.approx(1.0)
    assert estimate._relative_size(new_state(tiny), range(1, 2)) == 1.0


def test_an_evaluation_is_decoded_to_its_last_step(tiny, monkeypatch):
    results = []

    def generate(*arguments, **settings):
        results.append(original(*arguments, **settings))
        return results[-1]

    original = estimate.generate
    monkeypatch.setattr(estimate, "generate", generate)
    state = new_state(tiny)
    cost = estimate._evaluation_cost(state, fixed_pairs(state.task, 16, split="validation"), 16)
    assert cost.seconds(16) > 0
    assert results[-1].tokens.shape == (16, 6)  # five digits and EOS
    assert state.model.training


def test_an_evaluation_of_many_is_extrapolated_from_one_and_a_few(tiny, monkeypatch):
    clock = [0.0]

    def evaluate(model, pairs, steps):
        clock[0] += 2.0 + 0.25 * len(pairs)

    monkeypatch.setattr(estimate, "_evaluate", evaluate)
    monkeypatch.setattr(estimate, "_now", lambda device: clock[0])
    state = new_state(tiny)
    pairs = fixed_pairs(state.task, 16, split="validation")
    cost = estimate._evaluation_cost(state, pairs, 4)
    together = cost.together
    assert cost.seconds(together) == pytest.approx(2.0 + 0.25 * together)
    assert cost.seconds(together + 50) == pytest.approx(2 * 2.0 + 0.25 * (together + 50))  # a second pass
    assert estimate._evaluation_cost(state, pairs, 1).seconds(2) == pytest.approx(2 * 2.25)  # no more can be said


def test_only_the_validation_pairs_that_exist_are_counted(tiny, monkeypatch):
    set_costs(monkeypatch, per_sequence=0.01)
    monkeypatch.setattr(estimate, "fixed_pairs", lambda task, count, **_: fixed_pairs(task, 3, split="validation"))
    assert midpoint(tiny) == pytest.approx(3 * (3 + 16) * 0.01)


def test_the_number_of_threads_is_restored(tiny):
    torch.set_num_threads(2)
    estimate_training_time(tiny)
    assert torch.get_num_threads() == 2


def test_estimating_a_large_preset_takes_seconds_at_most():
    started = time.process_time()
    assert estimate_training_time(load_preset("small")) is not None
    assert time.process_time() - started < 8.0
