"""``resume``: continue a stopped, failed or interrupted run, or extend one to more training steps."""

import argparse

from core.cli.arguments import changes_from, recorded_command
from core.cli.signals import stopped_by_signals
from core.cli.train import follow, print_result, report_end, train_with_bar, warn_of_memory
from core.config import Preset
from core.runs import DEFAULT_ROOT, RunFolder, check_resumable
from core.runs.logs import check_logs
from core.runs.training import training
from core.runs.training_state import resume_state
from core.storage.error_messages import shortened
from core.storage.errors import InputError
from core.training.devices import device_named
from core.training.distributed import process_group
from core.training.schedules import learning_rate_at
from core.training.state import TrainingState

STEPS = "training.steps"  # the only value that can change: what the run has learned so far belongs to the others


def run(options: argparse.Namespace) -> int:
    """Continue from the run's last saved state to its end, or to the one that ``--set`` gives."""
    folder = RunFolder(options.checkpoints or DEFAULT_ROOT, options.run)
    planned = folder.read_preset()
    preset = _extended(planned, options)
    device, logs = device_named(options.device), check_logs(options.log)
    with process_group(preset, device) as group:
        if group.rank == 0:
            check_resumable(folder, steps=preset.training.steps)
            warn_of_memory(preset, device, folder.pairs)
        if group.rank > 0:
            state = resume_state(folder, preset, device=device)
            state.process_group = group
            return follow(state)
        command = recorded_command(options)
        with (
            stopped_by_signals(group.request_stop) as signals,
            training(folder, preset=preset, device=device, process_group=group, command=command, logs=logs) as run,
        ):
            if preset != planned:
                print(_change_of_schedule(run.state, planned=planned.training.steps))
            train_with_bar(run)
        return print_result(*report_end(run, signals), as_json=options.json)


def _extended(preset: Preset, options: argparse.Namespace) -> Preset:
    """Return the preset with the number of steps that ``--set`` gives, if any."""
    changes = changes_from(options)
    if other := next((key for key in changes if key != STEPS), None):
        raise InputError(f"--set {shortened(other)}: resume changes {STEPS} only; train a new run for other settings")
    return preset.with_changes(changes)


def _change_of_schedule(state: TrainingState, *, planned: int) -> str:
    """Say what happens to the learning rate of a run that was planned to end after another number of steps."""
    step, config = state.step, state.preset.training
    text = (
        f"{planned:,} steps become {config.steps:,}; the learning rate ({config.schedule}) goes on as that of a run of "
    )
    text += f"so many steps: {learning_rate_at(step + 1, config):.3g} at step {step + 1:,}"
    if not step:
        return text
    return f"{text}, after {learning_rate_at(step, config.model_copy(update={'steps': planned})):.3g} at step {step:,}"
