"""Runs in worker threads: start, watch, stop and resume, each independent of the others."""

import threading
import time
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import core.runs.training
from core.generation import generate
from core.interpret.inspection import inspect
from core.runs import RunError, RunFolder, RunProgress
from core.runs.training_state import clone_weights, load_state
from core.storage.tensor_file import CheckpointError, write_tensors
from core.tasks import fixed_pairs
from core.teaching.bugs import new_state
from core.training.loop import train
from tests.support.run_helpers import LONG_TRAINING, read_rows, wait_for, wait_for_status
from tests.support.trainings import train_run


def trained_alone(root: Path, preset) -> RunFolder:
    """The same training without threads."""
    folder = RunFolder.create(root, preset, name="alone")
    train_run(folder)
    return folder


# --- from start to end ------------------------------------------------------------------------------------------


def test_a_run_trains_in_the_background_to_its_end(runs, tiny):
    name = runs.start(tiny, name="first")
    assert name == "first"
    info = wait_for_status(runs, name, "finished", "failed")
    assert (info.status, info.step, info.sequences_seen) == ("finished", 8, 64)
    assert runs[name].history.points()["step"] == list(range(1, 9))
    assert runs[name].history.evaluations()["step"] == [0, 4, 8]
    assert runs[name].preset == tiny
    assert runs[name].progress == RunProgress(info, 8)
    loaded = runs[name].trained()
    assert (loaded.run, loaded.kind, loaded.step) == (name, "best", info.best_step)
    assert not loaded.model.training


def test_a_gru_run_is_trained_and_inspected_like_any_other(runs, tiny_gru):
    runs.start(tiny_gru, name="recurrent")
    assert wait_for_status(runs, "recurrent", "finished", "failed").status == "finished"
    loaded = runs["recurrent"].trained()
    seen = inspect(loaded.model, loaded.task, "4829")
    assert (seen.maps.encoder, seen.maps.decoder) == (None, None)
    assert seen.maps.cross.shape == (1, 1, 1, len(seen.steps), 6)
    assert [(score.layer, score.head) for score in seen.scores] == [(1, 1)]


def test_thread_and_lock_end_with_the_run(runs, tiny, root):
    runs.start(tiny, name="a")
    wait_for_status(runs, "a", "finished")
    wait_for(lambda: not any(thread.name == "train a" for thread in threading.enumerate()))
    RunFolder(root, "a").lock().release()


def test_a_missing_run_is_named_in_the_error(runs):
    for call in (runs.__getitem__, runs.resume, runs.delete, runs.rename):
        with pytest.raises(RunError, match="run='nobody': there is no such run"):
            call("nobody", *(("title",) if call == runs.rename else ()))
    with pytest.raises(RunError, match="is not training here"):
        runs.stop("nobody")
    with pytest.raises(RunError, match="is not a valid name"):
        _ = runs["../etc"].info


def test_watching_a_run_changes_none_of_its_results(make_runs, root, tiny, monkeypatch):
    monkeypatch.setattr("core.server.live.SECONDS_BETWEEN_COPIES", 0.0)
    preset = tiny.with_changes({"model.dropout": 0.2, "training.steps": 40, "training.evaluate_every": 10})
    alone = trained_alone(root, preset)
    runs = make_runs()
    runs.start(preset, name="watched")
    seen = set()
    while runs["watched"].info.status in ("queued", "training"):
        torch.manual_seed(0)
        try:
            loaded = runs["watched"].trained()
        except RunError:
            continue  # no weights yet
        seen.add(loaded.step)
        pairs = fixed_pairs(loaded.task, 4, split="test")
        generate(loaded.model, pairs.src, max_steps=6, need_weights=True)
        with torch.no_grad():
            loaded.model.output.weight.zero_()  # it is a copy: this cannot hurt
    assert len(seen) > 1
    assert read_rows(RunFolder(root, "watched").metrics) == read_rows(alone.metrics)


def test_two_concurrent_runs_equal_runs_trained_alone(make_runs, root, tiny):
    preset = tiny.with_changes({"model.dropout": 0.2, "training.steps": 30, "training.evaluate_every": 10})
    alone = trained_alone(root, preset)
    runs = make_runs(max_runs=2)
    for name in ("a", "b"):
        runs.start(preset, name=name)
    for name in ("a", "b"):
        wait_for_status(runs, name, "finished")
        assert read_rows(RunFolder(root, name).metrics) == read_rows(alone.metrics)


# --- watching ---------------------------------------------------------------------------------------------------


def test_metrics_and_weights_of_a_live_run_advance(runs, tiny):
    runs.start(tiny.with_changes(LONG_TRAINING), name="live")
    wait_for(lambda: runs["live"].history.evaluations()["step"][:1] == [0])
    wait_for(lambda: runs["live"].info.step > 25)  # well past its first evaluation, so there are weights
    wait_for(lambda: runs["live"].trained().step > 0)
    first = runs["live"].trained()
    assert first.kind == "latest"
    weights = clone_weights(first.model)
    wait_for(lambda: runs["live"].trained().step > first.step)
    later = runs["live"].trained()
    assert later.model is not first.model
    assert_close(clone_weights(first.model), weights, atol=0, rtol=0)
    assert not torch.equal(later.model.output.weight, first.model.output.weight)
    progress = runs["live"].progress
    assert (progress.info.status, progress.steps, progress.queue_position) == ("training", 5_000, None)
    wait_for(lambda: runs["live"].progress.steps_per_second is not None)
    progress = runs["live"].progress
    expected = (5_000 - progress.info.step) / progress.steps_per_second
    assert progress.seconds_left == pytest.approx(expected)


def test_latest_weights_are_those_of_their_step(make_runs, tiny, monkeypatch):
    monkeypatch.setattr("core.server.live.SECONDS_BETWEEN_COPIES", 1e9)  # at evaluations only
    preset = tiny.with_changes(LONG_TRAINING | {"training.evaluate_every": 5, "training.batch_size": 2})
    runs = make_runs()
    runs.start(preset, name="live")
    wait_for(lambda: runs["live"].info.step >= 20)
    loaded = runs["live"].trained()
    runs.stop("live")
    again = new_state(preset)
    for _ in train(again):
        if again.step == loaded.step:
            break
    assert loaded.step >= 15
    assert_close(clone_weights(loaded.model), clone_weights(again.model), atol=0, rtol=0)


def test_loaded_models_are_cached(runs, tiny):
    runs.start(tiny, name="a")
    wait_for_status(runs, "a", "finished")
    wait_for(lambda: runs["a"].trained() is runs["a"].trained())


def test_a_live_run_opens_with_the_weights_of_its_first_step(runs, tiny):
    preset = tiny.with_changes(LONG_TRAINING)
    runs.start(preset, name="live")
    wait_for(lambda: runs["live"].info.step > 25)
    assert runs["live"].weights_by_step.steps == (0,)
    first = runs["live"].trained(0)
    assert (first.kind, first.step) == ("kept", 0)
    assert_close(clone_weights(first.model), clone_weights(new_state(preset).model), atol=0, rtol=0)
    with pytest.raises(RunError, match="step=20 is not one whose weights run='live' kept: 0"):
        runs["live"].trained(20)


def test_models_of_earlier_steps_are_cached_in_a_bounded_number(runs, tiny, root, monkeypatch):
    monkeypatch.setattr("core.runs.run.CACHED_EARLIER_MODELS", 2)
    folder = trained_alone(root, tiny)
    models = {step: runs["alone"].trained(step) for step in (0, 4)}
    assert all(runs["alone"].trained(step) is models[step] for step in (4, 0))
    last = runs["alone"].trained(8)  # in place of the one least recently used
    assert runs["alone"].trained(0) is models[0]
    assert runs["alone"].trained(8) is last
    assert runs["alone"].trained(4) is not models[4]
    assert_close(clone_weights(last.model), clone_weights(load_state(folder.last, tiny).model), atol=0, rtol=0)


def test_weights_of_another_model_are_refused(runs, tiny, root):
    folder = trained_alone(root, tiny)
    write_tensors(folder.weights_by_step_file, {"0.output.weight": torch.zeros(2, 2)}, {})
    with pytest.raises(CheckpointError, match="the file of weights at step 0 does not fit the model"):
        runs["alone"].trained(0)
    folder.weights_by_step_file.write_bytes(b"damaged")
    with pytest.raises(RunError, match="kept: no step"):
        runs["alone"].trained(0)


# --- stop and resume --------------------------------------------------------------------------------------------


def test_a_stopped_run_stops_quickly_and_is_saved(runs, tiny, root):
    runs.start(tiny.with_changes(LONG_TRAINING), name="a")
    wait_for(lambda: runs["a"].info.step > 5)
    started = time.monotonic()
    runs.stop("a")
    assert runs["a"].info.status in ("stopping", "stopped")
    info = wait_for_status(runs, "a", "stopped")
    assert time.monotonic() - started < 2.0
    assert info.step > 5
    assert load_state(RunFolder(root, "a").last, runs["a"].preset).step == info.step
    assert runs["a"].history.points()["step"][-1] == info.step
    with pytest.raises(RunError, match="is not training here"):
        runs.stop("a")


def test_a_resumed_server_run_equals_one_that_never_stopped(make_runs, root, tiny, monkeypatch):
    preset = tiny.with_changes({"model.dropout": 0.2, "training.steps": 30, "training.evaluate_every": 10})
    alone = trained_alone(root, preset)
    genuine, targets = core.runs.training.train, (5, 17)

    def wait_to_be_stopped(state):
        for event in genuine(state):
            yield event
            if event.step in targets:
                (live,) = runs.active()
                live.stop.wait()

    monkeypatch.setattr("core.runs.training.train", wait_to_be_stopped)
    runs = make_runs()
    runs.start(preset, name="a")
    steps = []
    for target in targets:
        wait_for(lambda target=target: runs["a"].info.step >= target)
        runs.stop("a")
        steps.append(wait_for_status(runs, "a", "stopped").step)
        runs.resume("a")
    wait_for_status(runs, "a", "finished")
    assert steps == [6, 18]  # the step that was waiting still ends
    folder = RunFolder(root, "a")
    assert read_rows(folder.metrics) == read_rows(alone.metrics)
    last, expected = (load_state(one.last, preset).model for one in (folder, alone))
    assert_close(clone_weights(last), clone_weights(expected), atol=0, rtol=0)
    assert runs["a"].history.points()["step"] == list(range(1, 31))


def test_an_interrupted_run_can_be_resumed_by_another_process(runs, tiny, root):
    RunFolder.create(root, tiny, name="a", status="training")
    assert runs["a"].info.status == "interrupted"
    runs.resume("a")
    assert wait_for_status(runs, "a", "finished").step == 8


def test_a_training_run_cannot_be_resumed(runs, tiny):
    runs.start(tiny.with_changes(LONG_TRAINING), name="a")
    with pytest.raises(RunError, match=r"run='a' is already (queued|training)"):
        runs.resume("a")


def test_closing_stops_and_saves_all_runs(make_runs, tiny, root):
    runs = make_runs(max_runs=1)
    for name in ("a", "b"):
        runs.start(tiny.with_changes(LONG_TRAINING), name=name)
    wait_for(lambda: runs["a"].info.step > 0)
    runs.close()
    assert [RunFolder(root, name).read_info().status for name in ("a", "b")] == ["stopped", "stopped"]
    assert RunFolder(root, "a").last.exists()
