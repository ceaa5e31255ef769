"""Every file-system call fails once with each error, and a power cut after any call tears no file."""

import errno

import pytest

from core.runs import RunError, RunFolder, list_runs
from core.runs.importing import import_weights
from core.runs.recorder import Recorder
from core.runs.training_state import load_state, resume_state
from core.storage.atomic import write_atomically
from core.storage.tensor_file import is_intact, previous_path, read_tensors, read_with_fallback, save_weights, serialize
from core.teaching.bugs import new_state
from core.training.loop import EvaluationEvent, train
from tests.faults.disk import Disk
from tests.faults.fingerprints import fingerprint
from tests.faults.power import after_power_cuts
from tests.support.trainings import train_run

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)


def trained(root, preset, name: str, disk: Disk, monkeypatch) -> tuple[RunFolder, list[str], str]:
    """Train a run whose disk fails during the save at step 4; return the run, its notices and its status."""
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr("core.runs.recorder.MIN_SECONDS_BETWEEN_FLUSHES", 60.0)
    folder = RunFolder.create(root, preset, name=name)
    state, notices = new_state(preset), []
    recorder = Recorder(folder, state)
    for event in train(state):
        if isinstance(event, EvaluationEvent) and event.step == 4:
            with disk.watched():
                recorder.record(event)
        else:
            recorder.record(event)
        notices.append(state.notice)
    return folder, notices, folder.read_info().status


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_a_run_finishes_when_any_call_of_a_save_fails(root, tiny, monkeypatch, error):
    preset = tiny.with_changes({"model.dropout": 0.1})
    good = Disk()
    straight, notices, _ = trained(root, preset, "straight", good, monkeypatch)
    assert not any(notices)
    expected, reached = fingerprint(straight), 0
    for call in range(1, len(good.log) + 1):
        disk = Disk(fail_at=call, error=error)
        folder, notices, status = trained(root, preset, f"a{call}", disk, monkeypatch)
        if call > len(disk.log):  # a slow machine saves with fewer calls, so that this one was not reached
            continue
        reached, failed = reached + 1, disk.log[call - 1][:2]
        assert status == "finished"
        assert fingerprint(folder) == expected, failed
        messages = [notice for notice in notices if notice]
        assert messages or failed[0] in ("open", "read", "close", "unlink", "link"), failed  # of the existing file
        assert all("step 4 could not be saved" in notice for notice in messages)
    assert reached >= len(good.log) - 2


def failure_of(do) -> str:
    """Call ``do`` and return the message of an OSError or RunError, or ""."""
    try:
        do()
    except (OSError, RunError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_a_run_can_be_resumed_when_its_last_save_fails(root, tiny, monkeypatch, error):
    def end(name: str, disk: Disk) -> RunFolder:
        folder = RunFolder.create(root, tiny, name=name)
        train_run(folder, stop_after=1)
        state = resume_state(folder)
        recorder = Recorder(folder, state)
        for event in train(state):
            with disk.watched() if event.step == 8 and not isinstance(event, EvaluationEvent) else Disk().watched():
                recorder.record(event)
        return folder

    good = Disk()
    end("good", good)
    for call in range(1, len(good.log) + 1):
        name = f"a{call}"
        failed = failure_of(lambda name=name, call=call: end(name, Disk(fail_at=call, error=error)))
        assert "step 8 could not be saved" in failed or not failed
        folder = RunFolder(root, name)
        state, _ = read_with_fallback(folder.last, lambda path: load_state(path, tiny))
        best, _ = read_with_fallback(folder.best, lambda path: read_tensors(path)[1]["step"])
        assert state.step in (1, 8)
        assert best in (0, 4, 8)
        resumed = resume_state(folder)
        list(train(resumed))
        assert resumed.step == 8


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_creating_and_importing_a_run_are_all_or_nothing(root, tiny, error):
    model = new_state(tiny).model
    facts = {"step": 1, "validation_loss": 1.0, "exact_match": None, "preset": RunFolder.create(root, tiny).path}
    facts["preset"] = (facts["preset"] / "preset.yaml").read_text()
    data = bytes(serialize(model.state_dict(), facts))
    creators = {"new": lambda name: RunFolder.create(root, tiny, name=name)}
    creators["import"] = lambda name: import_weights(root, data, name=name)
    for kind, make in creators.items():
        good = Disk()
        with good.watched():
            make(f"{kind}-good")
        for call in range(1, len(good.log) + 1):
            name = f"{kind}-{call}"
            with Disk(fail_at=call, error=error).watched():
                failure_of(lambda name=name, make=make: make(name))
            folder = RunFolder(root, name)
            if folder.exists():  # complete
                assert folder.read_preset() == tiny
                assert kind == "new" or is_intact(folder.best)
            assert not [each for each in root.iterdir() if each.name.startswith(".")]
    assert len(list_runs(root)) >= 3


# --- power cuts --------------------------------------------------------------------------------------------------


def plain(path, data) -> None:
    path.write_bytes(data)


def renamed(path, data) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def ours(path, data) -> None:
    write_atomically(path, data, previous=previous_path(path))


@pytest.mark.parametrize("links", [True, False], ids=["with hard links", "without"])
def test_no_power_cut_tears_a_file(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no links")))
    states, torn = {}, {}
    for write in (plain, renamed, ours):
        path = tmp_path / f"{write.__name__}.safetensors"
        path.write_bytes(b"old content")
        disk = Disk()
        with disk.watched():
            write(path, b"new content")
        assert path.read_bytes() == b"new content"
        log = [each for each in disk.log if links or each[0] != "link"]
        states[write], at_the_end = after_power_cuts(log, path, b"old content")
        torn[write] = len(states[write] - {b"old content", b"new content"})
        if write is ours:
            calls = [(call, rest[0]) for call, *rest in disk.log]
    assert torn[plain]
    assert torn[renamed]
    assert states[ours] == {b"old content", b"new content"}
    assert at_the_end == {b"new content"}
    order = [call for call, _ in calls]
    last = len(order) - 1 - order[::-1].index("replace")
    assert order[:5] == ["open", "write", "flush", "fsync", "close"]
    assert order[last + 1 :] == ["folder", "fsync"]
    assert calls[-1][1] == str(tmp_path)


def test_a_checkpoint_is_synced_before_it_replaces_the_old_one(tiny, tmp_path):
    path = tmp_path / "best.safetensors"
    save_weights(path, new_state(tiny).model.state_dict(), {"step": 1})
    disk = Disk()
    with disk.watched():
        save_weights(path, new_state(tiny).model.state_dict(), {"step": 2})
    order = [call for call, *_ in disk.log if call not in ("read",)]
    # read the existing file; write the new one: its header, then its tensors
    expected = ["open", "close", "open", "write", "write", "flush", "fsync", "close"]
    expected += ["link", "replace", "unlink", "replace", "folder", "fsync"]
    assert order == expected
