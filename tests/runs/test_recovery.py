"""Recovery from damaged files, a full disk and crashes."""

import errno
import os
import shutil

import pytest
from torch.testing import assert_close

from core.config import read_preset
from core.runs import RunError, RunFolder, delete_leftovers, load_run
from core.runs.recorder import Recorder
from core.runs.training_state import clone_weights, load_state, resume_state
from core.server import Runs
from core.storage.error_messages import explain_error
from core.storage.tensor_file import CheckpointError, previous_path, read_tensors
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import EvaluationEvent, train
from tests.support.trainings import train_run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, tiny) -> RunFolder:
    """A run of 8 steps that was saved after 3 and after 6, then stopped."""
    folder = RunFolder.create(tmp_path_factory.mktemp("stopped"), tiny.with_changes({"model.dropout": 0.2}), name="a")
    for stop in (3, 6):
        train_run(folder, stop_after=stop)
    return folder


@pytest.fixture
def folder(root, stopped) -> RunFolder:
    """A copy of ``stopped`` to damage."""
    shutil.copytree(stopped.path, root / "a")
    return RunFolder(root, "a")


def damage(path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_state_is_replaced_by_the_previous_one_bit_exactly(root, tiny, folder):
    damage(folder.last)
    state = resume_state(folder)
    assert state.step == 3
    assert state.notice == (
        "last.safetensors is damaged: its content does not match its checksum; the previous file is used instead"
    )
    info = train_run(folder)
    assert (info.status, info.message) == ("finished", state.notice)
    straight = RunFolder.create(root, folder.read_preset(), name="straight")
    train_run(straight)
    ends = [clone_weights(load_state(each.last, each.read_preset()).model) for each in (folder, straight)]
    assert_close(*ends, atol=0, rtol=0)
    figures = [History.load(each.metrics) for each in (folder, straight)]
    assert figures[0].points() == figures[1].points()
    assert figures[0].evaluations() == figures[1].evaluations()


def test_a_run_without_a_usable_state_does_not_start_over(folder):
    for path in (folder.last, previous_path(folder.last)):
        damage(path)
    with pytest.raises(
        CheckpointError,
        match=r"last\.safetensors is damaged.*the previous file cannot .*last\.previous\.safetensors is",
    ):
        resume_state(folder)


def test_a_missing_state_is_replaced_by_the_previous_one(folder):
    folder.last.unlink()
    assert resume_state(folder).step == 3


def test_damaged_best_weights_are_replaced_by_the_previous_ones_with_a_note(folder):
    assert read_tensors(folder.best)[1]["step"] == 4
    damage(folder.best)
    loaded = Runs(folder.path.parent)["a"].trained()
    assert loaded.step == 0
    assert "best.safetensors is damaged" in folder.read_info().message
    said = folder.read_info().message
    load_run(folder.path)
    assert folder.read_info().message == said  # once


def test_best_weights_contain_their_preset(folder):
    facts = read_tensors(folder.best)[1]
    assert read_preset(facts["preset"], name="x") == folder.read_preset()


def test_training_restores_a_deleted_preset(folder, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)
    preset = folder.read_preset()
    state = resume_state(folder)
    recorder = Recorder(folder, state)
    (folder.path / "preset.yaml").unlink()
    recorder.record(next(train(state)))
    assert read_preset((folder.path / "preset.yaml").read_bytes(), name="x") == preset
    assert "preset.yaml was deleted during training and has been restored" in state.notice


def test_a_deleted_preset_is_restored_from_the_best_weights_and_noted_once(folder):
    preset = folder.read_preset()
    (folder.path / "preset.yaml").unlink()
    assert folder.ensure_preset() == preset
    assert folder.has_preset()
    assert folder.read_info().message.count("preset.yaml was deleted") == 1
    (folder.path / "preset.yaml").unlink()
    damage(folder.best)
    with pytest.raises(RunError, match=r"preset\.yaml is missing and cannot be restored: best\.safetensors is damaged"):
        folder.ensure_preset()


def test_a_deleted_preset_is_restored_even_while_the_folder_is_locked(folder, caplog):
    preset, lock = folder.read_preset(), folder.lock()
    (folder.path / "preset.yaml").unlink()
    with caplog.at_level("INFO", logger="core.runs.folder"):
        assert folder.ensure_preset() == preset
    lock.release()
    assert read_preset((folder.path / "preset.yaml").read_bytes(), name="x") == preset
    assert "note 'preset.yaml was deleted" in caplog.text
    assert folder.read_info().message == ""


# --- a disk that is full -----------------------------------------------------------------------------------------


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_training_survives_a_full_disk_and_saves_later(root, tiny, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 0.0)
    folder = RunFolder.create(root, tiny, name="a")
    state, notices = new_state(tiny), []
    recorder = Recorder(folder, state)
    for event in train(state):
        with monkeypatch.context() as broken:
            if isinstance(event, EvaluationEvent) and event.step == 4:
                broken.setattr("os.fsync", full)
            recorder.record(event)
        notices.append((event.step, state.notice))
    said = "step 4 could not be saved (OSError: No space left on device); the last saved step is 0"
    assert (4, f"{said}; {explain_error(OSError(errno.ENOSPC, ''))}") in notices
    assert notices[-1] == (8, "")
    assert (folder.read_info().status, folder.read_info().message) == ("finished", "")
    assert load_state(folder.last, tiny).step == 8


def test_a_run_that_cannot_be_saved_at_its_end_fails_and_keeps_its_last_state(folder, monkeypatch):
    before = folder.last.read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr("core.runs.recorder.save_state", full)
        with pytest.raises(RunError, match=r"step 8 could not be saved \(OSError: No space left on device\)"):
            train_run(folder)
    assert folder.read_info().status == "failed"
    assert folder.read_info().message.startswith("step 8 could not be saved")
    assert folder.last.read_bytes() == before
    assert train_run(folder).status == "finished"


def test_partly_written_metrics_are_written_once(folder, monkeypatch):
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 0.0)
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 60.0)
    state = new_state(folder.read_preset())
    recorder = Recorder(folder, state)
    for event in train(state):
        if event.step == 2:  # half a line is on disk, and then there is no more room
            recorder._metrics._unwritten_lines.append("half")
            recorder.folder.metrics.open("a").write('{"step": 2, "lo')
            recorder._metrics._is_complete = False
        recorder.record(event)
    assert History.load(folder.metrics).points() == recorder.history.points()
    assert "half" not in folder.metrics.read_text()


def test_an_error_is_raised_even_if_it_cannot_be_recorded(folder, monkeypatch):
    def explode(event) -> None:
        monkeypatch.setattr("os.fsync", full)
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        train_run(folder, on_event=explode)


# --- what crashes leave ------------------------------------------------------------------------------------------


def test_locking_a_run_deletes_only_its_own_temporary_files(folder):
    for name in (".last.safetensors.0123abcd.tmp", ".run.json.0123abcd.tmp", ".best.previous.safetensors.00000000.tmp"):
        (folder.path / name).write_bytes(b"torn")
    others = [".ablate.json.0123abcd.tmp", ".last.safetensors.tmp", "notes.tmp"]  # of others, or of no one here
    for name in others:
        (folder.path / name).write_bytes(b"x")
    before = set(os.listdir(folder.path))
    folder.lock().release()
    assert before - set(os.listdir(folder.path)) == {
        ".last.safetensors.0123abcd.tmp",
        ".run.json.0123abcd.tmp",
        ".best.previous.safetensors.00000000.tmp",
    }


def test_only_old_temporary_files_are_deleted(root, folder):
    for name in (".b.0123abcd.new", ".c.0123abcd.new", ".d.new"):
        (root / name).mkdir()
    for name in (".run.json.0123abcd.tmp", ".ablate.json.0123abcd.tmp", ".ablate.json.11111111.tmp"):
        (folder.path / name).write_bytes(b"")
    old = [root / ".b.0123abcd.new", root / ".d.new", folder.path / ".ablate.json.0123abcd.tmp"]
    for path in old:
        os.utime(path, (1e9, 1e9))
    delete_leftovers(root)
    assert not any(path.exists() for path in old)
    assert (root / ".c.0123abcd.new").exists()
    assert (folder.path / ".ablate.json.11111111.tmp").exists()
    delete_leftovers(root / "nowhere")
    assert folder.read_info().status == "stopped"


def test_deleting_leftovers_continues_after_an_entry_that_cannot_be_accessed(root, monkeypatch):
    drafts = [root / f".{name}.0123abcd.new" for name in "abc"]
    for path in drafts:
        path.mkdir(parents=True)
    refused = drafts[0]

    def is_older_than(path, seconds):
        if path == refused:
            raise PermissionError(errno.EACCES, "denied")
        return True

    monkeypatch.setattr("core.runs.folder.is_older_than", is_older_than)
    for refused in drafts:  # whichever is listed first
        for path in drafts:
            path.mkdir(exist_ok=True)
        delete_leftovers(root)
        assert [path for path in drafts if path.exists()] == [refused]


def test_two_processes_creating_the_same_run_do_not_interfere(root, tiny, monkeypatch):
    from core.storage.atomic import write_atomically

    def write_and_let_the_other_finish(path, data):
        monkeypatch.undo()
        RunFolder.create(root, tiny, name="a")
        write_atomically(path, data)

    monkeypatch.setattr("core.runs.folder.write_atomically", write_and_let_the_other_finish)
    with pytest.raises(RunError, match="run='a' exists already"):
        RunFolder.create(root, tiny.with_changes({"training.seed": 1}), name="a")
    assert RunFolder(root, "a").read_preset() == tiny
    assert os.listdir(root) == ["a"]
