"""Provenance: a run says which program made it, on what and how; it names nobody, and files from anyone are checked."""

import argparse
import getpass
import io
import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from core import __version__
from core.__main__ import main
from core.cli.arguments import recorded_command
from core.config import preset_to_yaml
from core.runs import DEFAULT_ROOT, RunError, RunFolder, TrainingSession
from core.runs import provenance as capture
from core.runs.export import CARD, package_files
from core.runs.importing import import_weights
from core.runs.info import MAX_SESSIONS
from core.runs.provenance import begin_session, with_session
from core.storage.tensor_file import CheckpointError, deserialize, read_header, read_tensors, serialize
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for_status

UNKNOWN = "\n## Training\n\nProgram, machine and time of the training were not recorded.\n"


@pytest.fixture(scope="module")
def own_file(tmp_path_factory, tiny) -> Path:
    """The file of a preset whose folder has a telling name."""
    path = tmp_path_factory.mktemp("anna") / "mine.yaml"
    path.write_text(preset_to_yaml(tiny), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, own_file) -> RunFolder:
    """A run that was trained by a command; tests must not change it."""
    root = tmp_path_factory.mktemp("bob")
    command = ["train", "--preset", str(own_file), "--run", "a", "--seed", "3", "--set", "training.steps=6"]
    assert main(["--checkpoints", str(root), *command, "--device", "cpu"]) == 0
    return RunFolder(root, "a")


def session(**changes) -> dict:
    """A session as files have it."""
    made = begin_session(command="train --preset tiny", step=0, device="cpu", processes=1)
    return made.model_dump(mode="json") | changes


def with_provenance(run: RunFolder, provenance) -> bytes:
    """The best weights of a run with other provenance, or with none."""
    file = io.BytesIO(run.best.read_bytes())
    header = read_header(file, "x")
    facts = {name: value for name, value in header.facts.items() if name != "provenance"}
    facts |= {} if provenance is None else {"provenance": provenance}
    return bytes(serialize(deserialize(header, file.read(), "x"), facts))


def test_a_run_keeps_how_it_was_trained(run):
    (made,) = run.read_info().provenance
    assert made.command == "train --preset mine.yaml --run a --seed 3 --device cpu --set training.steps=6"
    assert made.version == __version__
    assert (made.python, made.numpy) == (platform.python_version(), version("numpy"))
    assert made.torch == torch.__version__
    assert made.system.startswith(platform.system())
    assert made.cpu
    assert (made.device, made.gpu, made.threads, made.processes, made.step) == ("cpu", None, 1, 1, 0)
    assert timedelta(0) <= datetime.now(UTC) - made.end < timedelta(minutes=10)
    assert timedelta(0) <= made.end - made.start < timedelta(minutes=10)


def test_the_weights_and_the_model_card_say_the_same(run):
    (made,) = run.read_info().provenance
    (of_weights,) = read_tensors(run.best)[1]["provenance"]
    assert TrainingSession(**of_weights).model_copy(update={"end": made.end}) == made
    card = package_files(run)[CARD].decode()
    line = next(line for line in card.splitlines() if f"`python -m core {made.command}`" in line)
    for text in (f"{made.start:%Y-%m-%d %H:%M}", made.commit or "", made.python, made.torch, made.numpy, made.cpu):
        assert text in line


@pytest.mark.parametrize("way", ["file", "half", "zip", "folder"])
def test_every_export_has_the_provenance_of_its_weights(run, root, tmp_path, way):
    out = tmp_path / {"zip": "x.zip", "folder": "x"}.get(way, "x.safetensors")
    options = {"half": ["--half"], "folder": ["--whole"]}.get(way, [])
    command = ["--checkpoints", str(run.path.parent), "export", "--run", "a", "--out", str(out), *options]
    assert main(command) == 0
    assert main(["--checkpoints", str(root), "import", str(out), "--run", "b"]) == 0
    sessions = read_tensors(run.best)[1]["provenance"]
    assert len(sessions) == 1
    imported = RunFolder(root, "b")
    assert read_tensors(imported.best)[1]["provenance"] == sessions
    assert imported.read_info().model_dump(mode="json")["provenance"] == sessions


def test_the_card_of_an_older_run_says_that_it_was_not_recorded():
    folder = RunFolder(DEFAULT_ROOT, SHIPPED)
    assert folder.read_info().provenance == ()
    assert UNKNOWN in package_files(folder)[CARD].decode()


def test_nothing_names_the_user_the_host_or_a_folder(run, own_file):
    texts = [(run.path / "run.json").read_text(), package_files(run)[CARD].decode()]
    texts.append(json.dumps(read_tensors(run.best)[1]["provenance"]))
    names = [str(run.path.parent), str(own_file.parent), str(Path.home()), own_file.parent.name, run.path.parent.name]
    for text in texts:
        for name in [*names, getpass.getuser(), platform.node()]:
            assert len(name) < 3 or not re.search(rf"\b{re.escape(name)}\b", text), name


def test_the_command_keeps_neither_folders_nor_the_secret_of_a_name():
    given = {"command": "resume", "run": "tiny-1-" + "k3" * 12, "device": "auto", "set": ["training.steps=9"]}
    assert recorded_command(argparse.Namespace(**given)) == "resume --run tiny-1 --set training.steps=9"
    made = begin_session(
        command="train --set 'task.x=/home/anna/ü\n`<b>`'" + "9" * 2_000, step=0, device="cpu", processes=1
    )
    assert made.command.startswith("train --set 'task.x=?home?anna?????b??'99")
    assert len(made.command) == 1_000


def test_a_run_of_the_page_says_page(runs, tiny):
    runs.start(tiny, name="a")
    wait_for_status(runs, "a", "finished")
    assert [made.command for made in runs["a"].info.provenance] == ["page"]


def test_every_resumption_adds_a_session(root, run):
    copied = import_weights(root, run.best.read_bytes(), name="b")  # the sessions travel with the weights
    assert copied.read_info().provenance == tuple(
        TrainingSession(**each) for each in read_tensors(run.best)[1]["provenance"]
    )
    folder = RunFolder.create(root, run.read_preset(), name="c", status="stopped")
    for steps in (6, 9):
        assert main(["--checkpoints", str(root), "resume", "--run", "c", "--set", f"training.steps={steps}"]) == 0
    assert [(made.command, made.step) for made in folder.read_info().provenance] == [
        ("resume --run c --set training.steps=6", 0),
        ("resume --run c --set training.steps=9", 6),
    ]


def test_of_many_sessions_the_first_and_the_latest_are_kept():
    kept: tuple[TrainingSession, ...] = ()
    for number in range(20):
        kept = with_session(kept, begin_session(command=f"resume {number}", step=number, device="cpu", processes=2))
    assert [made.step for made in kept] == [0, *range(20 - MAX_SESSIONS + 1, 20)]


# --- files from anyone ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "provenance",
    [
        "train",
        {"command": "train"},
        [7],
        [session(command="train --preset /home/anna/x.yaml")],
        [session(command="`whoami`")],
        [session(command="a" * 1_001)],
        [session(cpu="<script>alert(1)</script>")],
        [session(gpu="a | b")],
        [session(cpu="a" * 101)],
        [session(commit="main")],
        [session(device="tpu")],
        [session(start="1970-01-01T00:00:00")],
        [session(start="0001-01-01T00:00:00+14:00")],
        [session(threads=-1)],
        [session(step=10**10)],
        [{key: value for key, value in session().items() if key != "torch"}],
        [session()] * (MAX_SESSIONS + 1),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_provenance_that_is_not_valid_is_refused(run, root, provenance):
    with pytest.raises(CheckpointError, match=r": provenance.*( should | is missing)"):
        import_weights(root, with_provenance(run, provenance))
    assert not root.exists() or os.listdir(root) == []
    folder = RunFolder.create(root, run.read_preset(), name="a")
    info = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps(info | {"provenance": provenance}))
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        folder.read_info()


def test_unknown_keys_of_a_session_are_dropped(run, root):
    folder = import_weights(root, with_provenance(run, [session(more="<script>")]))
    assert b"<script>" not in folder.best.read_bytes() + (folder.path / "run.json").read_bytes()


def test_files_without_provenance_open_as_before(run, root):
    folder = import_weights(root, with_provenance(run, None), name="old")
    info = json.loads((folder.path / "run.json").read_text())
    del info["provenance"]
    (folder.path / "run.json").write_text(json.dumps(info))
    assert folder.read_info().provenance == ()
    assert "provenance" not in read_tensors(folder.best)[1]
    assert UNKNOWN in package_files(folder)[CARD].decode()


# --- the checkout -----------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_the_commit_is_that_of_the_program_and_says_if_files_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(capture, "REPOSITORY", tmp_path)
    commit = capture.commit_of_program.__wrapped__
    assert commit() is None  # no checkout
    git(tmp_path, "init", "-q")
    assert commit() is None  # no commit
    (tmp_path / "file").write_text("a")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("a")
    assert commit() == head
    (tmp_path / "file").write_text("b")
    assert commit() == f"{head}-dirty"
    inner = tmp_path / "installed"  # a package inside another project's checkout
    inner.mkdir()
    monkeypatch.setattr(capture, "REPOSITORY", inner)
    assert commit() is None


def test_a_missing_or_failing_program_is_no_error():
    assert capture._output_of("no-such-program") == ""
    assert capture._output_of(sys.executable, "-c", "raise SystemExit(1)") == ""
