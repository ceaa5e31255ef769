"""``resume``: continue a stopped, failed or interrupted run."""

import argparse

import torch

from core.cli.arguments import add_device, add_json, add_run, recorded_command
from core.cli.train import follow, print_result, train_with_bar
from core.runs import DEFAULT_ROOT, RunFolder, check_resumable
from core.runs.training_state import resume_state
from core.training.devices import device_named
from core.training.distributed import process_group
from core.training.history import History


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    add_device(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Continue from the run's last saved state to its end."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.run)
    device = device_named(options.device)
    with process_group(folder.preset(), device) as group:
        if group.rank == 0:
            check_resumable(folder)
        state = resume_state(folder, device=device)
        state.process_group = group
        if group.world_size == 1:  # with several processes, torchrun sets the number of threads
            torch.set_num_threads(state.threads)  # otherwise the rest would not be bit-exact
        if group.rank > 0:
            return follow(state)
        history = History.load(folder.metrics)
        history.rewind(state.step, evaluated_step=state.evaluated_step)
        figures, code = train_with_bar(folder, state, history, command=recorded_command(options))
        return print_result(figures, code, as_json=options.json)
