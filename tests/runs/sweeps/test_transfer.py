"""Runs sent between machines: what has changed, in an order that survives a break, into the run's folder only."""

from pathlib import Path

import pytest
import torch

from core.config import Preset
from core.runs import RunFolder
from core.runs.sweeps.training import sweep_training
from core.runs.sweeps.transfer import Sender, read_files, write_files
from core.runs.training_state import resume_state
from core.storage.tensor_file import previous_path, read_tensors


def train(root: Path, preset: Preset, stop_at: int | None = None) -> RunFolder:
    with sweep_training(RunFolder(root, "run"), preset) as run:
        for event in run:
            if event.step == stop_at:
                break
    return run.folder


def contents(folder: RunFolder) -> dict[str, bytes]:
    return {name: text for name, text in read_files(folder).items() if ".previous." not in name}


@pytest.fixture
def stopped(root, tiny) -> RunFolder:
    """A run that was stopped after 2 of its steps."""
    return train(root, tiny, stop_at=2)


def test_a_run_that_is_sent_resumes_elsewhere_and_comes_back_whole(stopped, root, tmp_path, tiny):
    there = RunFolder(tmp_path / "there", stopped.name)
    there.path.mkdir(parents=True)
    write_files(there, read_files(stopped))
    assert contents(there) == contents(stopped)
    (stopped.path / "title.json").write_text("{}")  # renamed here meanwhile
    sender, before = Sender(there), contents(stopped)
    assert sender.changed() == {}
    train(there.path.parent, tiny)
    changed = sender.changed()
    assert {"last.safetensors", "run.json", "metrics.jsonl"} <= changed.keys()
    assert "preset.yaml" not in changed
    assert list(changed)[-2:] == ["last.safetensors", "run.json"]
    assert sender.changed() == {}
    write_files(stopped, changed)
    assert contents(stopped) == contents(there) | {"title.json": b"{}"}
    assert previous_path(stopped.last).read_bytes() == before["last.safetensors"]
    assert stopped.read_info().status == "finished"


def test_a_transfer_that_breaks_off_leaves_a_run_to_resume(stopped, root, tmp_path, tiny):
    there = RunFolder(tmp_path / "there", stopped.name)
    there.path.mkdir(parents=True)
    write_files(there, read_files(stopped))
    sender = Sender(there)
    train(there.path.parent, tiny)
    changed = list(sender.changed().items())
    for length in range(len(changed)):
        write_files(stopped, dict(changed[:length]))
        assert resume_state(stopped).step == (8 if "last.safetensors" in dict(changed[:length]) else 2)
    train(root, tiny)  # run.json, which says that it has finished, has not come
    expected, ours = read_tensors(there.last)[0], read_tensors(stopped.last)[0]
    assert all(torch.equal(tensor, ours[name]) for name, tensor in expected.items())


def test_hidden_files_stay_and_folders_travel(stopped):
    (stopped.path / "tensorboard").mkdir()
    (stopped.path / "tensorboard/events").write_bytes(b"1")
    (stopped.path / ".hidden").mkdir()
    (stopped.path / ".hidden/file").write_bytes(b"2")
    (stopped.path / "gone").symlink_to("nowhere")
    names = read_files(stopped).keys()
    assert "tensorboard/events" in names
    assert not [name for name in names if name.startswith(".") or name == "gone"]


@pytest.mark.parametrize("name", ["../other/run.json", "/etc/passwd", ".lock", "a/../../b", "", "a\\..\\b", "a/.lock"])
def test_no_path_leaves_the_folder(stopped, name, root):
    before = {path for path in root.parent.rglob("*")}
    with pytest.raises(ValueError, match="is not the path of a file of a run"):
        write_files(stopped, {name: b"x"})
    assert {path for path in root.parent.rglob("*")} == before
