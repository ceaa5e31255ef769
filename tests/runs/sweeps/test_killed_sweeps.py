"""A sweep of 60 runs in real processes, killed at random moments: it ends as 60 single trainings do."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from core.runs import RunFolder
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.processes import REPOSITORY
from core.runs.sweeps.sweep import base_of, load_sweep
from core.runs.sweeps.table import sweep_table
from core.runs.sweeps.trials import grid_trials
from core.storage.tensor_file import read_tensors
from tests.support.trainings import train_run

KILLS = 12
SWEEP = """
name: rates
preset: tiny
set: {training.evaluate_every: 10, training.warmup_steps: 4, training.validation_sequences: 32}
axes:
  training.learning_rate: {rates}
  model.d_model: [16, 32, 64]
seeds: 5
goal: {updates: 40}
"""


def start(root: Path, file: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "core", "--checkpoints", str(root), "sweep", str(file), "--jobs", "2", "--json"]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children_of(process: subprocess.Popen) -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def disturb(process: subprocess.Popen, rng: random.Random) -> None:
    """Kill the driver or a run, or stop the driver, at a random moment."""
    time.sleep(rng.uniform(2, 12))
    kind = rng.choice(["driver", "run", "run", "stop"])
    if kind == "run":
        for pid in children_of(process)[:1]:
            os.kill(pid, signal.SIGKILL)
        return
    process.send_signal(signal.SIGKILL if kind == "driver" else signal.SIGTERM)
    process.wait(timeout=60)


def finished(root: Path) -> dict[str, bytes]:
    """The files of all runs that have finished."""
    files = {path.parent.name: path.read_bytes() for path in root.glob("*/run.json")}
    return {name: text for name, text in files.items() if json.loads(text)["status"] == "finished"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the processes of runs in /proc")
def test_sixty_runs_killed_at_random_moments_equal_sixty_single_runs(tmp_path):
    root, alone, file = tmp_path / "checkpoints", tmp_path / "alone", tmp_path / "rates.yaml"
    file.write_text(SWEEP.replace("{rates}", "[0.001, 0.003, 0.01, 0.03]"))
    rng, process = random.Random(1), start(root, file)  # noqa: S311 - moments, not secrets
    trained: dict[str, bytes] = {}
    for _ in range(KILLS):
        disturb(process, rng)
        if process.poll() is not None:
            process.communicate()
            process = start(root, file)
        assert trained.items() <= (trained := finished(root)).items()  # what was done is left as it is
    output, errors = process.communicate()
    result = json.loads(output.splitlines()[-1])
    assert (process.returncode, result["status"], result["done"] + result["skipped"]) == (0, "finished", 60), errors
    assert trained.items() <= finished(root).items()
    assert len(finished(root)) == 60
    sweep = load_sweep(file)
    base, _ = base_of(sweep, tmp_path)
    expected = {}
    for trial in grid_trials(sweep, base):
        for seed in range(5):
            single = RunFolder.create(alone, trial.run_preset(seed), name=trial.run(seed))
            swept = RunFolder(root, trial.run(seed))
            train_run(single)
            (ours, _), (theirs, _) = read_tensors(single.last), read_tensors(swept.last)
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items()), swept.name
            expected[swept.name] = single.read_info().validation.validation_loss
    rows = sweep_table(SweepFolder(root, "rates")).rows
    assert {name: value for row in rows for name, value in zip(row.runs, row.values, strict=True)} == expected
    visible = {path.name for path in root.iterdir() if not path.name.startswith(".")}  # drafts are deleted later
    assert visible == expected.keys() | {"rates.sweep"}
