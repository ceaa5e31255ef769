"""``resume``: continue a stopped, failed or interrupted run."""

import argparse

import torch

from core.cli.train import follow, told, train_with_bar
from core.runs import DEFAULT_ROOT, RunFolder, check_resumable
from core.runs.recorder import continued_state
from core.training.devices import device_named
from core.training.distributed import process_group
from core.training.history import History


def run(options: argparse.Namespace) -> int:
    """Continue from the run's last saved state to its end."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.run)
    device = device_named(options.device)
    with process_group(folder.preset(), device) as group:
        if group.rank == 0:
            check_resumable(folder)
        state = continued_state(folder, device=device)
        state.process_group = group
        if group.world_size == 1:  # torchrun decides on the threads of several
            torch.set_num_threads(state.threads)  # or the rest would not be the same bit for bit
        if group.rank > 0:
            return follow(state)
        history = History.load(folder.metrics, state.preset.training.steps)
        history.rewind(state.step, evaluated_step=state.evaluated_step)
        return told(train_with_bar(folder, state, history), as_json=options.json)
