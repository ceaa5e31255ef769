"""Imported once by the process that trainings are forked from: everything they need is ready when they begin."""

import gc

import torch

from core.config import load_preset
from core.runs.provenance import PAGE, begin_session
from core.server import training_child
from core.teaching.bugs import new_state
from core.training.loop import train

__all__ = ["training_child"]


def _warm_up() -> None:
    """Train two steps, since PyTorch loads some code lazily, and look up what a run records of the program."""
    torch.set_num_threads(1)  # threads of PyTorch would not survive the fork
    state = new_state(load_preset("tiny").with_changes({"model.d_model": 8}))
    for _ in zip(range(3), train(state), strict=False):
        pass
    begin_session(command=PAGE, step=0, device="cpu", processes=1)
    gc.collect()
    gc.freeze()  # modules stay alive; scanning them would also copy memory that the processes share


_warm_up()
