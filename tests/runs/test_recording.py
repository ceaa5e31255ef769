"""Recording of a training, and bit-exact resuming."""

import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from core.config import Preset
from core.interpret.snapshots import Snapshot
from core.runs import RunFolder, RunInfo
from core.runs.recorder import Recorder, train_recorded
from core.runs.replay import Replay
from core.runs.training_state import clone_weights, load_state, resume_state
from core.runs.weights_by_step import WeightsByStep
from core.storage.tensor_file import load_weights
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import EndEvent, EvaluationEvent, StepEvent, train


def record(folder: RunFolder, *, stop_after: int | None = None, on_event=lambda event: None) -> RunInfo:
    """Train from where the folder is, stopping after a step if told so."""
    state = resume_state(folder)
    history = History.load(folder.metrics)
    history.rewind(state.step, evaluated_step=state.evaluated_step)
    return train_recorded(
        folder,
        state,
        history,
        should_stop=lambda: stop_after is not None and state.step >= stop_after,
        on_event=on_event,
    )


def lines(path: Path) -> list[dict]:
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda row: (row["step"], len(row)))


@pytest.fixture(scope="module")
def preset(tiny) -> Preset:
    return tiny.with_changes({"model.dropout": 0.2})


@pytest.fixture
def folder(root, preset) -> RunFolder:
    return RunFolder.create(root, preset, name="a")


@pytest.fixture(scope="module")
def straight(tmp_path_factory, preset) -> RunFolder:
    """The same training in another folder, never stopped; tests must not change it."""
    other = RunFolder.create(tmp_path_factory.mktemp("straight"), preset, name="straight")
    record(other)
    return other


def snapshots(folder: RunFolder) -> list[Snapshot]:
    return Replay.load(folder.replay_file, folder.preset().training.evaluate_every).snapshots()


def weights_by_step(folder: RunFolder) -> dict[int, dict[str, torch.Tensor]]:
    kept = WeightsByStep.load(folder.weights_by_step_file)
    return {step: dict(kept.at(step) or {}) for step in kept.steps}


def assert_ends_alike(one: RunFolder, other: RunFolder) -> None:
    assert lines(one.metrics) == lines(other.metrics)
    preset = one.preset()
    first, second = load_state(one.last, preset), load_state(other.last, preset)
    assert_close(clone_weights(first.model), clone_weights(second.model), atol=0, rtol=0)
    best, other_best = new_state(preset).model, new_state(preset).model
    facts, other_facts = load_weights(one.best, best), load_weights(other.best, other_best)
    assert facts.pop("provenance")  # when it was trained, and where it was stopped
    assert other_facts.pop("provenance")
    assert facts == other_facts
    assert_close(clone_weights(best), clone_weights(other_best), atol=0, rtol=0)
    assert snapshots(one) == snapshots(other) != []
    assert_close(weights_by_step(one), weights_by_step(other), atol=0, rtol=0)
    assert set(weights_by_step(one)) >= {0, preset.training.steps}
    ignored = {"created", "seconds", "provenance"}
    assert one.info().model_dump(exclude=ignored) == other.info().model_dump(exclude=ignored)


def test_a_finished_run_has_all_metrics_and_weights(folder):
    info = record(folder)
    assert info == folder.info()
    assert (info.status, info.step, info.message, info.sequences_seen) == ("finished", 8, "", 64)
    rows = lines(folder.metrics)
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 9))
    evaluations = [row for row in rows if "validation_loss" in row]
    assert [row["step"] for row in evaluations] == [0, 4, 8]
    best = min(evaluations, key=lambda row: row["validation_loss"])
    facts = load_weights(folder.best, new_state(folder.preset()).model)
    assert facts["step"] == info.best_step == best["step"]
    assert facts["validation_loss"] == pytest.approx(best["validation_loss"], rel=1e-5)
    assert info.exact_match == pytest.approx(evaluations[-1]["exact_match"], rel=1e-5)
    assert info.parameters == sum(tensor.numel() for tensor in clone_weights(new_state(folder.preset()).model).values())
    assert load_state(folder.last, folder.preset()).step == 8
    assert [each.step for each in snapshots(folder)] == [0, 4, 8]
    kept = weights_by_step(folder)
    assert sorted(kept) == [0, 4, 8]
    assert_close(kept[0], clone_weights(new_state(folder.preset()).model), atol=0, rtol=0)
    assert_close(kept[8], clone_weights(load_state(folder.last, folder.preset()).model), atol=0, rtol=0)


def test_the_best_weights_are_those_of_the_best_evaluation(root, tiny):
    restless = {"training.learning_rate": 1.0, "training.schedule": "constant", "training.evaluate_every": 1}
    folder = RunFolder.create(root, tiny.with_changes(restless), name="a")
    state = new_state(folder.preset())
    kept = {}
    history = History()

    def keep(event) -> None:
        if isinstance(event, EvaluationEvent) and event.is_best:
            kept.update(clone_weights(state.model))

    train_recorded(folder, state, history, should_stop=lambda: False, on_event=keep)
    model = new_state(folder.preset()).model
    facts = load_weights(folder.best, model)
    assert facts["step"] == folder.info().best_step < 8
    assert_close(clone_weights(model), kept, atol=0, rtol=0)


@pytest.mark.parametrize("stops", [[1], [3], [4], [5], [8], [2, 4, 7]])
def test_a_resumed_run_equals_one_that_never_stopped(folder, straight, stops):
    for stop in stops:
        info = record(folder, stop_after=stop)
        assert (info.status, info.step) == ("stopped", stop)
    assert record(folder).status == "finished"
    assert_ends_alike(folder, straight)


def test_a_run_killed_between_saves_resumes_without_gaps_or_duplicates(folder, straight, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 0.0)  # save at each evaluation
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)  # and write figures at each step
    state = new_state(folder.preset())
    recorder = Recorder(folder, state, History())
    for event in train(state):
        recorder.record(event)
        if event.step == 6:
            break  # nothing is told that it ended
    with folder.metrics.open("a") as file:
        file.write('{"step": 7, "lo')  # and the last line was being written
    assert folder.info().status == "interrupted"
    assert load_state(folder.last, folder.preset()).step == 4
    assert [row["step"] for row in lines_before_the_tear(folder.metrics) if "loss" in row] == [1, 2, 3, 4, 5, 6]
    assert record(folder).status == "finished"
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

    record(straight, on_event=check_size)
    assert len(lines(straight.metrics)) <= 13 + 4
    state = new_state(long)
    recorder = Recorder(killed, state, History())
    for event in train(state):
        recorder.record(event)
        if event.step == 77:
            break  # the state was saved at step 60
    assert record(killed).status == "finished"
    assert_ends_alike(killed, straight)


def test_a_run_stopped_between_two_kept_steps_continues_its_file(folder, straight):
    assert record(folder, stop_after=5).status == "stopped"
    assert sorted(weights_by_step(folder)) == [0, 4]
    before = folder.weights_by_step_file.stat().st_mtime_ns
    assert record(folder, stop_after=7).status == "stopped"
    assert folder.weights_by_step_file.stat().st_mtime_ns == before  # nothing new, nothing written
    record(folder)
    assert_ends_alike(folder, straight)


def test_weights_of_steps_that_are_trained_again_are_not_left_from_before(folder, straight):
    record(folder)
    folder.last.unlink()  # the run starts over
    record(folder, stop_after=3)
    assert sorted(weights_by_step(folder)) == [0]
    record(folder)
    assert_ends_alike(folder, straight)


def test_a_model_too_large_for_the_budget_leaves_no_file(folder, monkeypatch):
    monkeypatch.setattr("core.runs.weights_by_step.MAX_BYTES", 10_000)
    record(folder)
    assert not folder.weights_by_step_file.exists()
    assert [each.step for each in snapshots(folder)] == [0, 4, 8]


def test_a_run_killed_before_its_first_save_starts_over(folder, straight):
    state = new_state(folder.preset())
    recorder = Recorder(folder, state, History())
    for event in train(state):
        recorder.record(event)
        if event.step == 3:
            break
    assert not folder.last.exists()
    assert record(folder).status == "finished"
    assert_ends_alike(folder, straight)


def test_callbacks_receive_events_after_they_are_recorded(folder):
    seen = []
    record(folder, on_event=seen.append)
    assert [type(event) for event in seen].count(StepEvent) == 8
    assert seen[-1] == EndEvent(8, "finished")
    assert [type(event) for event in seen].count(EvaluationEvent) == 3


@pytest.mark.parametrize("at", [0, 3])
def test_an_exception_leaves_the_run_marked_failed_and_is_raised(folder, at):
    def explode(event) -> None:
        if event.step == at:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        record(folder, on_event=explode)
    info = folder.info()
    assert (info.status, info.message) == ("failed", "MemoryError: no room")
    assert record(folder).status == "finished"


def test_a_diverged_run_fails_with_the_step_in_its_message(folder, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: float("nan"))
    info = record(folder)
    assert info.status == "failed"
    assert info.message.startswith("step 1: loss=")
    assert folder.last.exists()


def test_metrics_are_flushed_during_training(folder, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)
    counts = []
    record(folder, on_event=lambda event: counts.append(len(lines(folder.metrics))))
    assert counts[3:5] == [4, 5]
    assert folder.info().status == "finished"


def test_status_is_training_until_the_end(folder):
    statuses = set()
    lock = folder.lock()
    record(folder, on_event=lambda event: statuses.add(folder.info().status) if event.step < 8 else None)
    lock.release()
    assert statuses == {"training"}


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
    info = record(whole)
    record(resumed, stop_after=5)
    figures = History.load(whole.metrics).evaluations()
    row = figures["step"].index(info.best_step)
    assert info.validation.validation_loss == figures["validation_loss"][row] == min(figures["validation_loss"])
    assert info.validation.exact_match == figures["exact_match"][row]
    assert (info.validation.bleu, info.validation.free_running_loss) == (None, None)
    assert record(resumed).validation == info.validation
