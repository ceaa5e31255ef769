"""Queued and failed runs, runs of other processes, and the list of all runs."""

import threading
from datetime import UTC, datetime

import pytest

import core.runs.training
from core.runs import RunError, RunFolder, RunInfo
from core.runs.recorder import Recorder
from core.teaching.bugs import new_state
from core.training.loop import train
from tests.support.run_helpers import LONG_TRAINING, wait_for, wait_for_status

# --- the queue --------------------------------------------------------------------------------------------------


def test_runs_beyond_the_limit_are_queued_and_start_in_order(make_runs, tiny):
    runs = make_runs(max_runs=1)
    for name in ("a", "b", "c"):
        runs.start(tiny.with_changes(LONG_TRAINING), name=name)
    wait_for_status(runs, "a", "training")
    assert [runs[name].progress.queue_position for name in ("a", "b", "c")] == [None, 1, 2]
    assert [runs[name].info.status for name in ("b", "c")] == ["queued", "queued"]
    with pytest.raises(RunError, match="run='b' has no weights yet; it is queued"):
        runs["b"].trained()
    runs.stop("a")
    wait_for_status(runs, "b", "training")
    assert [runs[name].progress.queue_position for name in ("b", "c")] == [None, 1]
    assert runs["a"].info.status == "stopped"


def test_a_queued_run_stops_immediately_and_others_move_up(make_runs, tiny, root):
    runs = make_runs(max_runs=1)
    for name in ("a", "b", "c"):
        runs.start(tiny.with_changes(LONG_TRAINING), name=name)
    runs.stop("b")
    assert runs["b"].info.status == "stopped"
    assert runs["c"].progress.queue_position == 1
    assert RunFolder(root, "b").read_info().step == 0
    RunFolder(root, "b").lock().release()
    runs.resume("b")
    assert runs["b"].progress.queue_position == 2


def test_no_more_runs_train_concurrently_than_allowed(make_runs, tiny):
    runs = make_runs(max_runs=2)
    names = [runs.start(tiny.with_changes(LONG_TRAINING)) for _ in range(4)]
    wait_for(lambda: sum(runs[name].info.step > 0 for name in names) == 2)
    assert sum(thread.name.startswith("train ") for thread in threading.enumerate()) == 2


# --- failures ---------------------------------------------------------------------------------------------------


def test_a_failed_worker_marks_its_run_and_is_freed(make_runs, tiny, monkeypatch):
    genuine = core.runs.training.train

    def failing(state):
        if state.preset.training.seed == 13:
            raise RuntimeError("the disk is full")
        return genuine(state)

    monkeypatch.setattr("core.runs.training.train", failing)
    runs = make_runs(max_runs=1)
    runs.start(tiny.with_changes({"training.seed": 13}), name="bad")
    runs.start(tiny, name="good")
    info = wait_for_status(runs, "bad", "failed")
    assert info.message.startswith("RuntimeError: the disk is full. This is a bug")
    assert wait_for_status(runs, "good", "finished").step == 8
    monkeypatch.undo()
    runs.resume("bad")
    assert wait_for_status(runs, "bad", "finished").step == 8


def test_a_run_with_a_damaged_state_fails_with_the_reason(runs, tiny, root):
    folder = RunFolder.create(root, tiny, name="a", status="stopped")
    folder.last.write_bytes(b"damaged")
    runs.resume("a")
    wait_for(lambda: runs["a"].info.status not in ("queued", "training"))
    assert runs["a"].info.status == "failed"
    assert "last.safetensors cannot be read" in runs["a"].info.message


def test_damaged_best_weights_are_named(runs, tiny, root):
    folder = RunFolder.create(root, tiny, name="a", status="stopped")
    folder.best.write_bytes(b"damaged")
    with pytest.raises(RunError, match=r"run='a': best.safetensors cannot be read"):
        runs["a"].trained()


def test_a_torn_last_line_of_metrics_is_ignored(runs, tiny, root):
    runs.start(tiny, name="a")
    wait_for_status(runs, "a", "finished")
    wait_for(lambda: runs["a"].info.status == "finished")
    with RunFolder(root, "a").metrics.open("a") as file:
        file.write('{"step": 9, "lo')
    assert runs["a"].history.points()["step"] == list(range(1, 9))


def test_metrics_after_the_saved_state_of_a_killed_run_are_replaced(runs, tiny, root, monkeypatch):
    folder = RunFolder.create(root, tiny, name="a")
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)
    state = new_state(tiny)
    recorder = Recorder(folder, state)
    for event in train(state):
        recorder.record(event)
        if event.step == 6:
            break  # killed: nothing is saved, but figures were written
    assert runs["a"].info.status == "interrupted"
    assert runs["a"].history.points()["step"] == [1, 2, 3, 4, 5, 6]
    runs.resume("a")
    wait_for_status(runs, "a", "finished")
    assert runs["a"].history.points()["step"] == list(range(1, 9))
    assert runs["a"].history.evaluations()["step"] == [0, 4, 8]


# --- several processes ------------------------------------------------------------------------------------------


def test_another_process_sees_a_run_but_cannot_take_it_over(make_runs, tiny, root):
    first, second = make_runs(), make_runs()
    first.start(tiny.with_changes(LONG_TRAINING), name="a")
    wait_for(lambda: first["a"].info.step > 0)
    wait_for_status(second, "a", "training")
    with pytest.raises(RunError, match="run='a' is already training"):
        second.resume("a")
    with pytest.raises(RunError, match="is not training here"):
        second.stop("a")
    assert list(second) == ["a"]
    first.stop("a")
    wait_for_status(first, "a", "stopped")
    wait_for(lambda: second["a"].info.status == "stopped")
    second.resume("a")
    wait_for_status(second, "a", "training")


# --- the list ---------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_shipped_last_without_damaged_ones(runs, tiny, root):
    for age, name in enumerate(["newest", "gift", "older", "torn", "odd", "robbed"]):
        folder = RunFolder.create(root, tiny, name=name, status="stopped")
        created = datetime.fromtimestamp(1e9 - age, UTC)
        folder.write_info(RunInfo(status="finished", created=created, shipped=name == "gift"))
    (root / "torn" / "run.json").write_text("{")
    (root / "odd" / "preset.yaml").write_text("{}")
    (root / "robbed" / "preset.yaml").unlink()
    assert list(runs) == ["newest", "older", "gift"]


def test_an_empty_or_missing_folder_lists_nothing(runs, root):
    assert list(runs) == []
    root.mkdir()
    assert list(runs) == []
