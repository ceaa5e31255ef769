"""Failures of runs: the owner reads cause and remedy, saved work is kept, other runs continue."""

import errno
import os
import shutil

import pytest

import core.runs.training
from core.config import Preset
from core.runs import RunError, RunFolder, delete_leftovers
from core.server import Runs
from core.storage.error_messages import explain_error
from tests.support.run_helpers import LONG_TRAINING, wait_for, wait_for_status

BAD = 13  # the seed of the run that something happens to


@pytest.fixture
def bad(tiny: Preset) -> Preset:
    return tiny.with_changes(LONG_TRAINING | {"training.seed": BAD})


def failing_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the training of the bad run raise at its tenth event."""
    genuine = core.runs.training.train

    def train(state):
        for count, event in enumerate(genuine(state)):
            if state.preset.training.seed == BAD and count == 10:
                raise error
            yield event

    monkeypatch.setattr("core.runs.training.train", train)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full; data saved before is kept. Delete"),
        (PermissionError(errno.EACCES, "Permission denied"), "is not writable; data saved before is kept"),
        (OSError(errno.EROFS, "Read-only file system"), "is not writable; data saved before is kept"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "was deleted while it was in use. Train the run again"),
        (MemoryError(), "out of memory; data saved before is kept. Use a smaller model"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero. This is a bug"),
        (RunError("run='a': last.safetensors is damaged"), "run='a': last.safetensors is damaged"),
    ],
)
def test_failure_messages_state_cause_and_remedy(error, said):
    assert said in explain_error(error)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), MemoryError(), ZeroDivisionError("oops")])
def test_a_failed_run_has_a_reason_and_others_continue(make_runs, tiny, bad, monkeypatch, error):
    failing_with(error, monkeypatch)
    runs: Runs = make_runs(max_runs=2)
    runs.start(tiny.with_changes(LONG_TRAINING), name="good")
    runs.start(bad, name="bad")
    info = wait_for_status(runs, "bad", "failed")
    assert info.message == explain_error(error)
    step = runs["good"].info.step
    wait_for(lambda: runs["good"].info.step > step)


def test_a_failure_that_cannot_be_recorded_is_still_reported_and_resumable(make_runs, bad, root, monkeypatch):
    failing_with(MemoryError(), monkeypatch)
    genuine = RunFolder.write_info

    def write_info(self, info):
        if info.status == "failed":
            raise OSError(errno.ENOSPC, "No space left on device")
        genuine(self, info)

    monkeypatch.setattr(RunFolder, "write_info", write_info)
    runs: Runs = make_runs()
    runs.start(bad, name="bad")
    info = wait_for_status(runs, "bad", "failed")
    wait_for(lambda: not runs.active())
    assert info.message == explain_error(MemoryError())
    assert RunFolder(root, "bad").read_info().status == "interrupted"  # all that its file can tell
    assert runs["bad"].info.status == "failed"
    monkeypatch.undo()
    runs.resume("bad")
    wait_for(lambda: runs["bad"].info.step > 0)


def test_a_run_whose_folder_was_deleted_fails_and_stays_listed(make_runs, bad, root):
    runs: Runs = make_runs()
    runs.start(bad, name="bad")
    wait_for(lambda: runs["bad"].info.step > 25)
    shutil.rmtree(RunFolder(root, "bad").path)
    wait_for(lambda: "could not be saved (FileNotFoundError" in runs["bad"].info.message, seconds=5)
    assert runs["bad"].info.status == "training"
    runs.stop("bad")
    info = wait_for_status(runs, "bad", "failed")
    wait_for(lambda: not runs.active())
    assert "was deleted while it was in use. Train the run again" in info.message
    assert list(runs) == ["bad"]
    assert runs["bad"].trained().step > 0
    with pytest.raises(RunError, match="no such run"):
        runs.resume("bad")
    runs.delete("bad")
    assert list(runs) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(make_runs, tiny, root):
    root.mkdir()
    root.chmod(0o500)
    with pytest.raises(RunError, match="cannot be written to"):
        make_runs().start(tiny, name="a")


def test_a_full_disk_is_refused(make_runs, tiny, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("core.runs.folder.write_atomically", full)
    with pytest.raises(RunError, match="cannot be started: the disk is full"):
        make_runs().start(tiny, name="a")


# --- deleting ---------------------------------------------------------------------------------------------------


def test_a_deleted_run_is_gone_with_all_its_files(runs: Runs, tiny, root):
    runs.start(tiny, name="a")
    wait_for_status(runs, "a", "finished")
    wait_for(lambda: not runs.active())
    runs.delete("a")
    assert list(runs) == []
    assert list(root.iterdir()) == []
    with pytest.raises(RunError, match="no such run"):
        _ = runs["a"].info


def test_a_run_in_training_or_shipped_is_not_deleted(runs: Runs, tiny, root):
    runs.start(tiny.with_changes(LONG_TRAINING), name="a")
    with pytest.raises(RunError, match="is in use: another process or thread trains it"):
        runs.delete("a")
    folder = RunFolder.create(root, tiny, name="gift", status="stopped")
    folder.write_info(folder.read_info().model_copy(update={"shipped": True}))
    with pytest.raises(RunError, match="is shipped with the program"):
        runs.delete("gift")
    assert set(list(runs)) == {"a", "gift"}


# --- whose it is ------------------------------------------------------------------------------------------------


def test_ownership_and_sharing_survive_training_and_restarts(make_runs, tiny, root):
    runs: Runs = make_runs()
    runs.start(tiny.with_changes({"training.steps": 40, "training.evaluate_every": 40}), name="a", owner="anna")
    runs.start(tiny, name="b")
    runs.share("a", True)
    wait_for_status(runs, "a", "finished")
    again: Runs = make_runs()
    assert (again.ownership("a").owner, again.ownership("a").shared) == ("anna", True)
    assert (again.ownership("b").owner, again.ownership("b").shared) == (None, False)
    again.share("a", False)
    assert (again.ownership("a").owner, again.ownership("a").shared) == ("anna", False)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"owner": 3}', b'{"owner": "eve", "admin": true}'])
def test_a_damaged_access_file_means_no_owner(runs: Runs, tiny, root, damage):
    folder = RunFolder.create(root, tiny, name="a", status="stopped")
    (folder.path / "access.json").write_bytes(damage)
    assert runs.ownership("a").owner is None
    assert not runs.ownership("a").shared


def test_a_deletion_that_was_killed_is_completed_and_its_name_can_be_deleted_again(
    root, tiny: Preset, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as killed:
        killed.setattr("core.server.registry.shutil.rmtree", lambda *args, **kwargs: None)
        for _ in range(2):
            RunFolder.create(root, tiny, name="mine", status="stopped")
            Runs(root).delete("mine")
    assert list(Runs(root)) == []
    left = os.listdir(root)
    assert len(left) == 2
    for folder in left:
        os.utime(root / folder, (0, 0))
    (root / ".mine.deleted").mkdir()  # as earlier versions left it
    os.utime(root / ".mine.deleted", (0, 0))
    delete_leftovers(root)
    assert os.listdir(root) == []
