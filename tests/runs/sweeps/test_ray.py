"""Sweeps on a Ray cluster of two nodes on this machine: the same tables and weights as in processes."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from core.runs import RunFolder
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.processes import REPOSITORY
from core.runs.sweeps.table import sweep_table
from core.storage.optional_imports import is_installed
from core.storage.tensor_file import read_tensors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed("ray"), reason="needs ray"),  # which reads its variables when it is imported
    pytest.mark.skipif(sys.platform == "win32", reason="kills processes"),
]

NODE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000}
LONG = """
name: long
preset: tiny
set: {training.evaluate_every: 50, training.warmup_steps: 4, training.validation_sequences: 32}
axes: {training.learning_rate: [0.001, 0.003], model.d_model: [16, 32]}
goal: {updates: 1400}
"""
PRUNED = """
name: pruned
preset: tiny
set: {training.evaluate_every: 10, training.warmup_steps: 4, training.validation_sequences: 32}
axes: {training.learning_rate: [0.01, 0.003, 0.001, 0.0003, 0.0001]}
seeds: 2
goal: {updates: 60}
pruning: halving
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes that let in only those who have the token, with all their files in a folder of their own."""
    # Names of sockets must be short, which rules tmp_path out.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    (folder / "token").write_text(secrets.token_hex(32))
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    from ray.cluster_utils import Cluster

    head = NODE | {"include_dashboard": False, "include_log_monitor": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(**NODE)
    yield cluster
    cluster.shutdown()
    for name, value in before.items():
        os.environ.pop(name)
        os.environ |= {name: value} if value is not None else {}
    shutil.rmtree(folder, ignore_errors=True)


def start(root: Path, file: Path, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "core", "--checkpoints", str(root), "sweep", str(file), *options]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> float:
    """Wait for a sweep, and return how many seconds that took."""
    begun = time.monotonic()
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    return time.monotonic() - begun


def facts(root: Path, name: str) -> tuple[list[dict], dict[str, dict[str, torch.Tensor]]]:
    """The table of a sweep but for times, and the last state of its runs."""
    table = sweep_table(SweepFolder(root, name)).as_json()["rows"]
    states = {path.parent.name: read_tensors(path)[0] for path in root.glob("*/last.safetensors")}
    return [row | {"seconds": None} for row in table], states


def assert_same(root: Path, other: Path, name: str) -> None:
    (table, states), (expected_table, expected_states) = facts(root, name), facts(other, name)
    assert table == expected_table
    assert states.keys() == expected_states.keys()
    for run, tensors in expected_states.items():
        assert tensors.keys() == states[run].keys()
        assert all(torch.equal(tensor, states[run][key]) for key, tensor in tensors.items()), run


def wait_until(condition: Callable[[], bool], process: subprocess.Popen, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.2)


def in_training(root: Path) -> list[RunFolder]:
    """The runs of which a state has come back that is not their last."""
    folders = [RunFolder(root, path.parent.name) for path in root.glob("*/last.safetensors")]
    return [folder for folder in folders if folder.written_info().status == "training"]


def resumed_at(root: Path) -> list[int]:
    """The steps at which runs were resumed."""
    infos = [json.loads(path.read_text()) for path in root.glob("*/run.json")]
    return [session["step"] for info in infos for session in info["provenance"][1:]]


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> tuple[Path, Path]:
    """The file of a sweep of long runs, and a folder where processes have trained it."""
    folder = tmp_path_factory.mktemp("long")
    file, root = folder / "long.yaml", folder / "checkpoints"
    file.write_text(LONG)
    finish(start(root, file, "--jobs", "2"))
    return file, root


def test_trials_are_pruned_as_by_processes(cluster, tmp_path):
    file, root, other = tmp_path / "pruned.yaml", tmp_path / "ray", tmp_path / "jobs"
    file.write_text(PRUNED)
    on_cluster = finish(start(root, file, "--ray", cluster.address, "--jobs", "1"))
    in_processes = finish(start(other, file, "--jobs", "1"))
    runs = len(list(root.glob("*/run.json")))
    assert_same(root, other, "pruned")
    assert 0 < sum(row["pruned"] is not None for row in facts(root, "pruned")[0]) < 5
    print(f"\n{runs} runs, one at a time: {on_cluster:.1f} s on the cluster, {in_processes:.1f} s in processes")


def test_a_node_that_is_killed_changes_nothing(cluster, long, tmp_path):
    file, other = long
    node = cluster.list_all_nodes()[-1]
    process = start(tmp_path, file, "--ray", cluster.address)
    wait_until(lambda: len(in_training(tmp_path)) == 2, process)
    cluster.remove_node(node, allow_graceful=False)
    finish(process)
    cluster.add_node(**NODE)
    assert_same(tmp_path, other, "long")
    assert len(resumed_at(tmp_path)) == 1
    assert resumed_at(tmp_path)[0] > 0, "resumed from its last state that had come back, not begun again"


def test_a_driver_that_is_stopped_or_killed_changes_nothing(cluster, long, tmp_path):
    file, other = long
    process = start(tmp_path, file, "--ray", cluster.address)
    wait_until(lambda: len(in_training(tmp_path)) == 2, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    stopped = {
        path.name: RunFolder(tmp_path, path.name).read_info() for path in tmp_path.iterdir() if path.suffix != ".sweep"
    }
    assert {info.status for info in stopped.values()} == {"stopped"}
    process = start(tmp_path, file, "--ray", cluster.address)
    wait_until(lambda: {each.name for each in in_training(tmp_path)} >= stopped.keys(), process)
    process.kill()
    process.communicate()
    assert {RunFolder(tmp_path, name).read_info().status for name in stopped} == {"interrupted"}
    finish(start(tmp_path, file, "--ray", cluster.address))
    assert_same(tmp_path, other, "long")
    assert min(resumed_at(tmp_path)) > 0


def test_a_token_that_is_wrong_is_refused_in_one_line(cluster, tmp_path, monkeypatch):
    file = tmp_path / "pruned.yaml"
    file.write_text(PRUNED)
    (tmp_path / "token").write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    process = start(tmp_path / "root", file, "--ray", cluster.address)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert [line for line in output.splitlines() if line.startswith("error: --ray=")]
    assert not (tmp_path / "root").exists()
