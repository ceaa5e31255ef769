"""``train`` and ``resume`` in two processes: one writes, a signal stops both, and a killed process ends both."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.__main__ import main
from core.runs import RunFolder
from core.runs.training_state import load_state
from tests.support.command_output import last_json
from tests.support.distributed_worker import REPOSITORY, start_two_processes
from tests.support.run_helpers import wait_for

QUICK = {"steps": 800, "batch_size": 8, "evaluate_every": 100, "warmup_steps": 2, "validation_sequences": 8}
SMALL = {f"training.{key}": value for key, value in QUICK.items()} | {"model.d_model": 16, "model.d_ff": 16}


def training(root: Path, *more: str) -> list[str]:
    """Arguments of a training of seconds, as run ``a``."""
    changes = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    command = ["core", "--checkpoints", str(root), "train", "--preset", "tiny", "--run", "a", "--device", "cpu"]
    return [*command, *changes, "--json", *more]


def torchrun(*arguments: str) -> subprocess.Popen:
    """Start two processes the way a person does; ``--`` because torchrun has a ``--run…`` of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "--", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_training(root: Path) -> bool:
    """Whether figures of the run have been written."""
    metrics = RunFolder(root, "a").metrics
    return metrics.is_file() and metrics.stat().st_size > 0


def assert_resumable(root: Path) -> None:
    """The run ended amid its steps, and its checkpoint and its figures agree on where."""
    folder = RunFolder(root, "a")
    info = folder.read_info()
    state = load_state(folder.last, folder.read_preset())
    assert 0 < info.step == state.step < QUICK["steps"]
    assert steps_of(folder) == list(range(1, state.step + 1))


def steps_of(folder: RunFolder) -> list[int]:
    """The steps whose figures were kept."""
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [line["step"] for line in lines if "learning_rate" in line]


def workers_of(launcher: subprocess.Popen) -> dict[int, int]:
    """Process ids by rank of what torchrun started."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    ranks = {}
    for pid in children:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        ranks |= {int(value[5:]): int(pid) for value in environment if value.startswith(b"RANK=")}
    return ranks


@pytest.mark.slow
def test_a_run_resumes_alone_after_another_process_was_killed(root, capsys):
    first, second = start_two_processes(lambda _: training(root))
    wait_for(lambda: is_training(root), seconds=300)
    second.kill()
    output, errors = first.communicate(timeout=300)
    assert first.returncode == 1
    assert second.communicate(timeout=300) == ("", "")
    assert last_json(output)["status"] == "failed"
    assert "another process of this training has ended" in errors
    assert_resumable(root)
    folder = RunFolder(root, "a")
    assert folder.read_info().status == "failed"
    assert "another process" in folder.read_info().message
    assert main(["--checkpoints", str(root), "resume", "--run", "a"]) == 0
    assert steps_of(folder) == list(range(1, QUICK["steps"] + 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--preset", "tiny", "--seeds", "2"], "--seeds=2 trains in one process"),
        (["train", "--preset", "tiny", "--set", "training.batch_size=1"], "training.batch_size=1 must be at least"),
        (["resume", "--run", "nothing"], "run='nothing': there is no such run"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_invalid_distributed_options_are_reported_by_one_process(root, capsys, monkeypatch, arguments, message, rank):
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert main(["--checkpoints", str(root), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: {message}") if rank == 0 else said.err == ""
    assert not root.exists()


@pytest.mark.slow
def test_processes_with_different_settings_are_refused(root):
    processes = start_two_processes(lambda rank: training(root, "--seed", str(rank)))
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert errors[0].startswith("error: the processes were started with different --preset, --seed or --set")
    assert [process.returncode for process in processes] == [2, 2]
    assert not root.exists()


# --- torchrun ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_torchrun_trains_one_run_and_prints_once(root):
    output, _ = torchrun(*training(root, "--set", "training.steps=200")).communicate(timeout=300)
    lines = output.splitlines()
    assert [line.split()[1] for line in lines[:3]] == ["0", "100", "200"]
    assert len(lines) == 5
    said = json.loads(lines[-1])
    assert (said["status"], said["steps"], said["sequences_seen"]) == ("finished", 200, 1600)
    assert len(steps_of(RunFolder(root, "a"))) == 200


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_processes_after_the_same_step(root, how):
    launcher = torchrun(*training(root))
    wait_for(lambda: is_training(root), seconds=300)
    launcher.send_signal(how)
    output, _ = launcher.communicate(timeout=300)
    assert "run a: stopped after" in output
    assert RunFolder(root, "a").read_info().status == "stopped"
    assert_resumable(root)
    again = torchrun("core", "--checkpoints", str(root), "resume", "--run", "a", "--device", "cpu", "--json")
    output, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert last_json(output)["status"] == "finished"
    assert steps_of(RunFolder(root, "a")) == list(range(1, QUICK["steps"] + 1))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_ends_when_a_process_is_killed(root, rank):
    launcher = torchrun(*training(root))
    wait_for(lambda: is_training(root), seconds=300)
    os.kill(workers_of(launcher)[rank], signal.SIGKILL)
    launcher.communicate(timeout=300)
    assert launcher.returncode == 1
    folder = RunFolder(root, "a")
    assert folder.read_info().status == ("interrupted" if rank == 0 else "failed")
    assert main(["--checkpoints", str(root), "resume", "--run", "a"]) == 0
    assert folder.read_info().status == "finished"
    assert steps_of(folder) == list(range(1, QUICK["steps"] + 1))
