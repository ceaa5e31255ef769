"""Processes that the tests kill. They fork from a server process that has already imported everything."""

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from core.config import preset_to_yaml
from core.runs import RunFolder
from core.runs import recorder as recording
from core.runs.training import training
from core.runs.training_state import clone_weights, resume_state
from core.server import Runs
from core.storage.tensor_file import save_weights
from core.training.checkpoint import save_state

REPOSITORY = Path(__file__).resolve().parents[2]


def processes() -> multiprocessing.context.BaseContext:
    """Return a context with processes that fork from a server process after its imports."""
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.warm"])
    return context


def save_repeatedly(root: Path, connection: Connection) -> None:
    """Save the best weights and the state in a loop; send (file, step) after each completed save."""
    torch.set_num_threads(1)
    folder = RunFolder(root, "a")
    lock = folder.lock()
    state = resume_state(folder)
    preset = preset_to_yaml(state.preset)
    connection.send("ready")
    while lock.is_locked:
        state.step += 1
        with torch.no_grad():
            for parameter in state.model.parameters():
                parameter.fill_(state.step)
        facts = {"step": state.step, "validation_loss": 0.0, "exact_match": None, "preset": preset}
        save_weights(folder.best, clone_weights(state.model), facts)
        connection.send(("best", state.step))
        save_state(folder.last, state)
        connection.send(("last", state.step))


def train_on(
    root: Path, name: str, connection: Connection, *, as_server: bool = False, save_often: bool = True
) -> None:
    """Resume a run and train it to its end, directly or in a server's worker thread; send "ready" at the start."""
    if save_often:
        recording.MIN_SECONDS_BETWEEN_SAVES = recording.MIN_SECONDS_BETWEEN_FLUSHES = 0.0
    torch.set_num_threads(1)
    torch.manual_seed(os.getpid())  # a run must not depend on the global generator
    folder = RunFolder(root, name)
    if as_server:
        runs = Runs(root)
        runs.resume(name)
        connection.send("ready")
        while runs[name].progress.info.status in ("queued", "training"):
            time.sleep(0.01)
        return
    with training(folder) as run:
        connection.send("ready")
        for _ in run:
            pass
