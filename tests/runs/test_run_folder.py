"""A run's folder: safe names, atomic creation, and a correct status even after a crash."""

import errno
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.config import preset_to_yaml
from core.runs import RunError, RunFolder, RunInfo, check_resumable, list_runs
from core.storage.tensor_file import write_tensors

BAD_NAMES = ["../x", "..", ".", "", "a/b", "/etc", "A", "a b", "a_b", "-a", "a" * 49, "ä", "a\n", "a\0", ".hidden"]


def test_invalid_run_names_are_refused(root):
    for name in BAD_NAMES:
        with pytest.raises(RunError, match="is not a valid name: use a-z, 0-9 and -, at most 48 characters"):
            RunFolder(root, name)


def test_error_messages_truncate_long_names(root):
    with pytest.raises(RunError) as caught:
        RunFolder(root, "a" * 1_000_000)
    assert len(str(caught.value)) < 200


def test_valid_names_create_a_folder_below_the_root(root, tiny):
    for name in ("a", "0", "a-b-3", "a" * 48):
        folder = RunFolder.create(root, tiny, name=name)
        assert folder.path == root / name
        assert folder.exists()


def test_a_new_run_has_preset_and_status(root, tiny):
    folder = RunFolder.create(root, tiny, name="new")
    assert folder.read_preset() == tiny
    info = folder.written_info()
    assert (info.status, info.step, info.shipped, info.best_step) == ("queued", 0, False, None)
    assert sorted(os.listdir(folder.path)) == ["preset.yaml", "run.json"]
    assert os.listdir(root) == ["new"]


def test_a_run_without_a_name_is_named_after_its_preset_and_the_next_number(root, tiny):
    assert [RunFolder.create(root, tiny).name for _ in range(3)] == ["tiny-1", "tiny-2", "tiny-3"]
    RunFolder.create(root, tiny, name="tiny-10")
    assert RunFolder.create(root, tiny).name == "tiny-11"
    assert RunFolder.create(root, tiny.model_copy(update={"name": "small"})).name == "small-1"


def test_a_number_that_another_process_takes_meanwhile_is_skipped(root, tiny, monkeypatch):
    for number in (1, 2):
        RunFolder.create(root, tiny, name=f"tiny-{number}")
    monkeypatch.setattr("core.runs.folder.names_in_use", lambda root: [])  # as if they did not exist yet
    assert RunFolder.create(root, tiny).name == "tiny-3"
    monkeypatch.setattr(Path, "exists", lambda path: False)  # and appear between the look and the rename
    assert RunFolder.create(root, tiny).name == "tiny-4"


def test_an_existing_run_is_not_overwritten(root, tiny):
    folder = RunFolder.create(root, tiny, name="mine")
    with pytest.raises(RunError, match="run='mine' exists already"):
        RunFolder.create(root, tiny.with_changes({"training.seed": 1}), name="mine")
    assert folder.read_preset() == tiny


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace", "pathlib.Path.rename"])
def test_a_run_that_cannot_be_written_leaves_nothing_behind(root, tiny, monkeypatch, failing):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(failing, full)
        with pytest.raises(OSError, match="No space"):
            RunFolder.create(root, tiny, name="new")
    assert os.listdir(root) == []
    assert RunFolder.create(root, tiny, name="new").exists()


def test_info_comes_back_as_written(root, tiny):
    folder = RunFolder.create(root, tiny, name="a")
    info = RunInfo(status="stopped", message="m", parameters=5, step=3, best_step=2, exact_match=0.5, seconds=1.5)
    folder.write_info(info)
    assert folder.read_info() == info


def test_missing_and_damaged_runs_are_named(root, tiny):
    nowhere = RunFolder(root, "nowhere")
    for read in (nowhere.read_info, nowhere.read_preset, nowhere.written_info):
        with pytest.raises(RunError, match="run='nowhere': there is no such run"):
            read()
    assert not nowhere.exists()
    folder = RunFolder.create(root, tiny, name="torn")
    for text in ("", "{", '{"format": "attention-lab-run-9", "status": "stopped"}', '{"status": "dreaming"}'):
        (folder.path / "run.json").write_text(text)
        with pytest.raises(RunError, match=r"run='torn': run\.json is damaged"):
            folder.read_info()
    (folder.path / "preset.yaml").write_text("task: [")
    with pytest.raises(RunError, match=r"run='torn': preset\.yaml is damaged: not valid YAML"):
        folder.read_preset()


def test_a_changed_preset_is_refused_until_its_checksum_or_the_file_is_deleted(root, tiny):
    folder = RunFolder.create(root, tiny, name="a")
    file = folder.path / "preset.yaml"
    assert "  steps: 8 " in file.read_text()
    file.write_text(file.read_text().replace("  steps: 8 ", "  steps: 9 "))
    with pytest.raises(RunError, match=r"run='a': preset\.yaml was changed .* delete its first line, .* the change$"):
        folder.read_preset()
    write_tensors(folder.best, {}, {"step": 1, "preset": preset_to_yaml(tiny)})
    with pytest.raises(RunError, match=r"to keep the change, or delete the file to restore it from best\.safetensors"):
        folder.read_preset()
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    assert folder.read_preset().training.steps == 9
    file.unlink()
    assert folder.ensure_preset() == tiny


def test_a_changed_run_json_says_so_until_it_is_written_again(root, tiny):
    folder = RunFolder.create(root, tiny, name="a", status="stopped")
    file = folder.path / "run.json"
    file.write_text(file.read_text().replace('"step": 0', '"step": 7'))
    assert folder.read_info().step == 7
    assert "run.json was changed after it was written" in folder.read_info().message
    folder.write_info(folder.read_info().model_copy(update={"message": ""}))
    assert folder.read_info().message == ""


def test_an_unreadable_preset_of_an_existing_run_is_reported_as_such(root, tiny, monkeypatch):
    folder = RunFolder.create(root, tiny, name="a")
    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(PermissionError(errno.EACCES, "denied")))
        with pytest.raises(RunError, match=r"run='a': preset\.yaml cannot be read: denied"):
            folder.read_preset()
        with pytest.raises(RunError, match=r"run='a': run\.json cannot be read: denied"):
            folder.written_info()
    (folder.path / "preset.yaml").unlink()
    with pytest.raises(RunError, match=r"preset\.yaml is missing and cannot be restored: best\.safetensors cannot be"):
        folder.read_preset()
    write_tensors(folder.best, {}, {"step": 1})
    with pytest.raises(RunError, match=r"preset\.yaml is missing and .* best\.safetensors contains no preset"):
        folder.read_preset()


# --- locks and status ----------------------------------------------------------------------------------------------


def test_an_active_status_without_a_lock_means_interrupted(root, tiny):
    for status in ("queued", "training", "stopping"):
        folder = RunFolder.create(root, tiny, name=status, status=status)
        assert folder.read_info().status == "interrupted"
        lock = folder.lock()
        assert folder.read_info().status == status
        lock.release()
        assert folder.read_info().status == "interrupted"


def test_an_ended_run_keeps_its_status(root, tiny):
    for status in ("stopped", "finished", "failed"):
        assert RunFolder.create(root, tiny, name=status, status=status).read_info().status == status


def test_a_lock_is_exclusive(root, tiny):
    folder = RunFolder.create(root, tiny, name="a")
    lock = folder.lock()
    with pytest.raises(RunError, match="run='a' is in use: another process or thread trains it"):
        RunFolder(root, "a").lock()
    lock.release()
    RunFolder(root, "a").lock().release()


def test_a_dead_process_leaves_its_run_interrupted_and_free(root, tiny):
    folder = RunFolder.create(root, tiny, name="a", status="training")
    script = (  # without core.runs, which takes seconds to import
        "import sys; from filelock import FileLock\n"
        "lock = FileLock(sys.argv[1]); lock.acquire(); print('locked', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(folder.path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "locked\n"
        assert folder.read_info().status == "training"
        with pytest.raises(RunError, match="is in use"):
            folder.lock()
        with pytest.raises(RunError, match="run='a' is already training"):
            check_resumable(folder)
    finally:
        process.kill()
        process.communicate()
    assert folder.read_info().status == "interrupted"
    check_resumable(folder)
    folder.lock().release()


def test_runs_with_steps_left_can_be_resumed(root, tiny):
    for status in ("stopped", "failed", "interrupted"):
        check_resumable(RunFolder.create(root, tiny, name=status, status=status))


def test_finished_and_shipped_runs_cannot_be_resumed(root, tiny):
    folder = RunFolder.create(root, tiny, name="a", status="finished")
    with pytest.raises(RunError, match="run='a' has finished, and no training state is left"):
        check_resumable(folder)
    folder.last.touch()
    folder.write_info(RunInfo(status="finished", step=8))
    with pytest.raises(RunError, match="run='a' has finished all its 8 steps"):
        check_resumable(folder)
    folder.write_info(RunInfo(status="stopped", shipped=True))
    with pytest.raises(RunError, match="run='a' is shipped with the program and cannot be resumed"):
        check_resumable(folder)


# --- the list ---------------------------------------------------------------------------------------------------


def test_list_runs_returns_only_runs_newest_first(root, tiny):
    assert list_runs(root) == []
    for age, name in enumerate(["newest", "middle", "oldest"]):
        folder = RunFolder.create(root, tiny, name=name)
        folder.write_info(RunInfo(status="stopped", created=datetime.fromtimestamp(1e9 - age, UTC)))
        os.utime(folder.path / "preset.yaml", (1e9 + age, 1e9 + age))  # when a file was written does not matter
    (folder.path / "preset.yaml").unlink()  # nor whether the preset has to be restored
    RunFolder.create(root, tiny, name="damaged")
    (root / "damaged" / "run.json").write_text("{")
    (root / "file").write_text("x")
    (root / "empty").mkdir()
    (root / "Not-A-Name").mkdir()
    (root / ".draft.new").mkdir()
    assert [folder.name for folder in list_runs(root)] == ["newest", "middle", "oldest", "damaged"]
