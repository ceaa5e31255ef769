"""Start processes that train together, and be one of them; ``test_parallel`` compares what they wrote.

Usage: torchrun's variables in the environment, and ``python -m tests.support.together FOLDER``. For every ``NAME.yaml``
there it trains the preset, from ``NAME.start.safetensors`` if there is one, and writes ``NAME.RANK.safetensors``, a
training state, and ``NAME.RANK.json``: losses and gradient norms by step.
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
from core.runs.recorder import load_state
from core.teaching.bugs import new_state
from core.training.checkpoint import save_state
from core.training.distributed import Workers, joined
from core.training.loop import EvaluationEvent, StepEvent, TrainingState, train

REPOSITORY = Path(__file__).resolve().parents[2]


def place(rank: int, port: int) -> dict[str, str]:
    """What torchrun would tell one of two processes."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return os.environ | {name: str(value) for name, value in told.items()} | {"OMP_NUM_THREADS": "1"}


def start_two(arguments_of: Callable[[int], list[str]]) -> list[subprocess.Popen]:
    """Start the two, rank 0 first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, "-m", *arguments_of(rank)],
            cwd=REPOSITORY,
            env=place(rank, port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]


def told(state: TrainingState, *, steps: int | None = None) -> list[tuple[float, float]]:
    """Train, up to so many steps in all, and tell the loss and the gradient norm of each."""
    figures = []
    for event in train(state):
        assert not (isinstance(event, EvaluationEvent) and state.workers.rank), "only the first one evaluates"
        if isinstance(event, StepEvent):
            figures.append((event.loss, event.gradient_norm))
            if event.step == steps:
                break
    return figures


def prepared(preset: Preset, name: str, start: Path | None = None) -> TrainingState:
    """Prepare a training; unless its name says otherwise in double precision, where the order of sums hardly counts."""
    state = load_state(start, preset) if start and start.exists() else new_state(preset)
    if name.startswith("float32"):
        return state
    state.model.double()
    for moments in state.optimizer.state.values():
        moments.update({key: each.double() for key, each in moments.items() if each.ndim})
    return state


def train_case(path: Path, workers: Workers) -> None:
    """Train what one file says, and write what came of it."""
    preset = load_preset_file(path)
    state = prepared(preset, path.stem, path.with_suffix(".start.safetensors"))
    state.workers = workers
    figures = told(state, steps=2 if path.stem.startswith("stopped") else None)
    save_state(path.with_suffix(f".{workers.rank}.safetensors"), state)
    path.with_suffix(f".{workers.rank}.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases = sorted(Path(sys.argv[1]).glob("*.yaml"))
    with joined(load_preset_file(cases[0]), "cpu") as together:
        for each in cases:
            train_case(each, together)
