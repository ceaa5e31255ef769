"""Recording of a training, and bit-exact resuming."""

import json
from pathlib import Path

import pytest
from torch.testing import assert_close

from core.runs import RunFolder
from core.runs.recorder import Recorder
from core.runs.training_state import clone_weights, load_state
from core.storage.tensor_file import load_weights
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import EvaluationEvent, train
from tests.support.run_helpers import read_rows
from tests.support.trainings import assert_ends_alike, snapshots_of, train_run, weights_by_step_of


def test_a_finished_run_has_all_metrics_and_weights(folder):
    info = train_run(folder)
    assert info == folder.read_info()
    assert (info.status, info.step, info.message, info.sequences_seen) == ("finished", 8, "", 64)
    rows = read_rows(folder.metrics)
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 9))
    evaluations = [row for row in rows if "validation_loss" in row]
    assert [row["step"] for row in evaluations] == [0, 4, 8]
    best = min(evaluations, key=lambda row: row["validation_loss"])
    facts = load_weights(folder.best, new_state(folder.read_preset()).model)
    assert facts["step"] == info.best_step == best["step"]
    assert facts["validation_loss"] == pytest.approx(best["validation_loss"], rel=1e-5)
    assert info.exact_match == pytest.approx(evaluations[-1]["exact_match"], rel=1e-5)
    assert info.parameters == sum(
        tensor.numel() for tensor in clone_weights(new_state(folder.read_preset()).model).values()
    )
    assert load_state(folder.last, folder.read_preset()).step == 8
    assert [each.step for each in snapshots_of(folder)] == [0, 4, 8]
    kept = weights_by_step_of(folder)
    assert sorted(kept) == [0, 4, 8]
    assert_close(kept[0], clone_weights(new_state(folder.read_preset()).model), atol=0, rtol=0)
    assert_close(kept[8], clone_weights(load_state(folder.last, folder.read_preset()).model), atol=0, rtol=0)


def test_the_best_weights_are_those_of_the_best_evaluation(root, tiny):
    restless = {"training.learning_rate": 1.0, "training.schedule": "constant", "training.evaluate_every": 1}
    folder = RunFolder.create(root, tiny.with_changes(restless), name="a")
    state = new_state(folder.read_preset())
    kept = {}

    def keep(event) -> None:
        if isinstance(event, EvaluationEvent) and event.is_best:
            kept.update(clone_weights(state.model))

    train_run(folder, state, on_event=keep)
    model = new_state(folder.read_preset()).model
    facts = load_weights(folder.best, model)
    assert facts["step"] == folder.read_info().best_step < 8
    assert_close(clone_weights(model), kept, atol=0, rtol=0)


@pytest.mark.parametrize("stops", [[1], [3], [4], [5], [8], [2, 4, 7]])
def test_a_resumed_run_equals_one_that_never_stopped(folder, straight, stops):
    for stop in stops:
        info = train_run(folder, stop_after=stop)
        assert (info.status, info.step) == ("stopped", stop)
    assert train_run(folder).status == "finished"
    assert_ends_alike(folder, straight)


def test_a_run_killed_between_saves_resumes_without_gaps_or_duplicates(folder, straight, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 0.0)  # save at each evaluation
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)  # and write figures at each step
    state = new_state(folder.read_preset())
    recorder = Recorder(folder, state)
    for event in train(state):
        recorder.record(event)
        if event.step == 6:
            break  # nothing is told that it ended
    with folder.metrics.open("a") as file:
        file.write('{"step": 7, "lo')  # and the last line was being written
    assert folder.read_info().status == "interrupted"
    assert load_state(folder.last, folder.read_preset()).step == 4
    assert [row["step"] for row in lines_before_the_tear(folder.metrics) if "loss" in row] == [1, 2, 3, 4, 5, 6]
    assert train_run(folder).status == "finished"
    assert_ends_alike(folder, straight)


def lines_before_the_tear(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()[:-1]]


def test_the_file_of_a_long_run_is_bounded_and_ends_alike_if_it_was_killed(root, preset, monkeypatch):
    monkeypatch.setattr("core.training.history._KEPT_GROUPS", 3)  # 13 rows at most, instead of thousands
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)
    long = preset.with_changes({"training.steps": 90, "training.evaluate_every": 30})
    killed, straight = (RunFolder.create(root, long, name=name) for name in ("killed", "straight"))

    def check_size(event) -> None:
        assert len(straight.metrics.read_text().splitlines()) <= 2 * (13 + 4)

    train_run(straight, on_event=check_size)
    assert len(read_rows(straight.metrics)) <= 13 + 4
    state = new_state(long)
    recorder = Recorder(killed, state)
    for event in train(state):
        recorder.record(event)
        if event.step == 77:
            break  # the state was saved at step 60
    assert train_run(killed).status == "finished"
    assert_ends_alike(killed, straight)


def test_a_run_stopped_between_two_kept_steps_continues_its_file(folder, straight):
    assert train_run(folder, stop_after=5).status == "stopped"
    assert sorted(weights_by_step_of(folder)) == [0, 4]
    before = folder.weights_by_step_file.stat().st_mtime_ns
    assert train_run(folder, stop_after=7).status == "stopped"
    assert folder.weights_by_step_file.stat().st_mtime_ns == before  # nothing new, nothing written
    train_run(folder)
    assert_ends_alike(folder, straight)


def test_weights_of_steps_that_are_trained_again_are_not_left_from_before(folder, straight):
    train_run(folder)
    folder.last.unlink()  # the run starts over
    train_run(folder, stop_after=3)
    assert sorted(weights_by_step_of(folder)) == [0]
    train_run(folder)
    assert_ends_alike(folder, straight)


def test_a_model_too_large_for_the_budget_leaves_no_file(folder, monkeypatch):
    monkeypatch.setattr("core.runs.weights_by_step.MAX_BYTES", 10_000)
    train_run(folder)
    assert not folder.weights_by_step_file.exists()
    assert [each.step for each in snapshots_of(folder)] == [0, 4, 8]


def test_a_run_killed_before_its_first_save_starts_over(folder, straight):
    state = new_state(folder.read_preset())
    recorder = Recorder(folder, state)
    for event in train(state):
        recorder.record(event)
        if event.step == 3:
            break
    assert not folder.last.exists()
    assert train_run(folder).status == "finished"
    assert_ends_alike(folder, straight)


def test_a_diverged_run_fails_with_the_step_in_its_message(folder, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: float("nan"))
    info = train_run(folder)
    assert info.status == "failed"
    assert info.message.startswith("step 1: loss=")
    assert folder.last.exists()


def test_metrics_are_flushed_during_training(folder, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)
    counts = []
    train_run(folder, on_event=lambda event: counts.append(len(read_rows(folder.metrics))))
    assert counts[3:5] == [4, 5]
    assert folder.read_info().status == "finished"


def test_cloned_weights_do_not_change_with_training(tiny):
    state = new_state(tiny)
    copy = clone_weights(state.model)
    again = clone_weights(state.model)
    list(train(state))
    assert_close(copy, again, atol=0, rtol=0)
    with pytest.raises(AssertionError):
        assert_close(copy, clone_weights(state.model), atol=0, rtol=0)


def test_the_validation_figures_of_the_best_step_are_in_run_json_also_after_a_resumption(root, tiny):
    whole, resumed = (RunFolder.create(root, tiny, name=name) for name in ("whole", "resumed"))
    info = train_run(whole)
    train_run(resumed, stop_after=5)
    figures = History.load(whole.metrics).evaluations()
    row = figures["step"].index(info.best_step)
    assert info.validation.validation_loss == figures["validation_loss"][row] == min(figures["validation_loss"])
    assert info.validation.exact_match == figures["exact_match"][row]
    assert (info.validation.bleu, info.validation.free_running_loss) == (None, None)
    assert train_run(resumed).validation == info.validation
