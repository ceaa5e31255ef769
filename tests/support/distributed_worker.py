"""Train in two processes: helpers that start them, and a program that trains many presets in two workers.

Usage: ``python -m tests.support.distributed_worker FOLDER``. Both workers train every ``NAME.yaml`` in the folder, from
``NAME.start.safetensors`` if that exists, and write ``NAME.RANK.safetensors`` (a training state) and ``NAME.RANK.json``
(loss and gradient norm of each step).
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from core.config import Preset, load_preset_file
from core.runs.training_state import load_state
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.distributed import ProcessGroup, process_group
from core.training.loop import EvaluationEvent, StepEvent, train
from core.training.state import TrainingState

REPOSITORY = Path(__file__).resolve().parents[2]


def worker_environment(rank: int, port: int) -> dict[str, str]:
    """The environment that torchrun gives one of two workers."""
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return os.environ | {name: str(value) for name, value in variables.items()}


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start_two_processes(arguments_of: Callable[[int], list[str]]) -> list[subprocess.Popen]:
    """Start two workers, rank 0 first."""
    port = find_free_port()
    return [
        subprocess.Popen(
            [sys.executable, "-m", *arguments_of(rank)],
            cwd=REPOSITORY,
            env=worker_environment(rank, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]


def train_and_record(state: TrainingState, *, steps: int | None = None) -> list[tuple[float, float]]:
    """Train up to step ``steps`` (None: to the end); return loss and gradient norm of each step."""
    figures = []
    for event in train(state):
        assert not (isinstance(event, EvaluationEvent) and state.process_group.rank), "only rank 0 evaluates"
        if isinstance(event, StepEvent):
            figures.append((event.loss, event.gradient_norm))
            if event.step == steps:
                break
    return figures


def prepare_state(preset: Preset, name: str, start: Path | None = None) -> TrainingState:
    """Load or create a training state: in float64 unless its name says float32."""
    state = load_state(start, preset) if start and start.exists() else new_state(preset)
    if name.startswith("float32"):
        return state
    state.model.double()
    for moments in state.optimizer.state.values():
        moments.update({key: each.double() for key, each in moments.items() if each.ndim})
    return state


def train_case(path: Path, group: ProcessGroup) -> None:
    """Train one preset file; write its final state and recorded figures."""
    preset = load_preset_file(path)
    state = prepare_state(preset, path.stem, path.with_suffix(".start.safetensors"))
    state.process_group = group
    figures = train_and_record(state, steps=2 if path.stem.startswith("stopped") else None)
    save_state(path.with_suffix(f".{group.rank}.safetensors"), state)
    path.with_suffix(f".{group.rank}.json").write_text(json.dumps(figures))


def train_cases(rank: int, folder: Path, port: int) -> None:
    """Train all preset files of the folder as one of two workers."""
    os.environ.update(worker_environment(rank, port))
    torch.set_num_threads(1)
    cases = sorted(folder.glob("*.yaml"))
    with process_group(load_preset_file(cases[0]), "cpu") as group:
        for each in cases:
            train_case(each, group)


def train_in_two_processes(folder: Path, *, timeout: float) -> None:
    """Run this program for a folder."""
    command = [sys.executable, "-m", "tests.support.distributed_worker", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    import torch._dynamo  # as the first optimizer would: here the two workers, which are forks, share its seconds

    work = (Path(sys.argv[1]), find_free_port())
    torch.multiprocessing.start_processes(train_cases, work, nprocs=2, start_method="fork")
