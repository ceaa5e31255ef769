"""Refuse a sweep that cannot succeed, before anything trains: its goal, its memory and its disk space."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from core.config import ConfigError, Preset
from core.config.listing import missing_package, work
from core.evaluation.headline import headline_of
from core.models import parameters_of
from core.runs import RunError
from core.runs.sweeps.folder import SweepFile, SweepFolder
from core.runs.sweeps.sweep import Sweep
from core.runs.sweeps.trials import Trial, describe
from core.runs.weights_by_step import MAX_BYTES
from core.tasks import Task, build_task
from core.training.memory import machine_memory, training_memory

PROCESS_BYTES = 300_000_000  # of Python and PyTorch in each process
MEGABYTE = 1_000_000
_MEMORY_SHARE = 0.9  # of the machine's memory, for this process and all that train
_COPIES = 8  # of the weights on disk: best, latest and its two moments; and the files before those
_OTHER_BYTES = 2_000_000  # metrics, attention snapshots and small files
_EXAMINED = 5  # trials with the most work, among which is the one that needs most


def memory_of(preset: Preset, pairs: Path | None) -> int:
    """Estimate the memory of a process that trains a preset, in bytes."""
    return PROCESS_BYTES + training_memory(preset, pairs).total


def memory_for_runs() -> int:
    """Return the memory that all processes of a sweep together may be estimated to take, in bytes."""
    return int(_MEMORY_SHARE * machine_memory()) - PROCESS_BYTES


def check_sweep(
    file: SweepFile, trials: Sequence[Trial], folder: SweepFolder, pairs: Path | None, *, on_cluster: bool = False
) -> None:
    """Refuse a sweep that cannot succeed.

    Args:
        file: the sweep and its base preset.
        trials: those of a grid, or some with extreme values; those with the most work are examined for memory and disk.
        folder: the sweep's folder, which need not exist.
        pairs: the file of the task's own pairs, if it has any.
        on_cluster: whether the runs are trained elsewhere, so that this machine's memory does not matter.

    Raises:
        ConfigError: the task does not have the goal's metric, or needs a package that is not installed; or this machine
            has too little memory or disk space.
        RunError: another run has the name of one of the sweep's.
        LabError: the task's data cannot be read.
    """
    largest = sorted(trials, key=lambda trial: work(trial.preset))[-_EXAMINED:]
    preset = largest[-1].preset
    if missing := missing_package(preset):
        raise ConfigError([("preset", f"task.family={preset.task.family!r} {missing}")])
    task = build_task(preset.task, pairs=pairs)
    _check_goal(file.sweep, preset, task)
    if file.sweep.search == "grid":
        runs = sum(_is_missing(folder, trial, seed) for trial in trials for seed in file.seeds)
    else:
        begun = [folder.run(name, seed) for name in folder.records() for seed in file.seeds]
        runs = file.sweep.num_runs - sum(run.exists() for run in begun)
    if runs <= 0:
        return
    if not on_cluster:
        _check_memory(largest, pairs)
    weights = [4 * parameters_of(trial.preset.model, task) for trial in largest]
    needed = runs * max(_COPIES * each + min(MAX_BYTES, 5 * each) + _OTHER_BYTES for each in weights)
    free = shutil.disk_usage(_existing(folder.root)).free
    if needed > free:
        text = f"{runs:,} runs need up to {needed // MEGABYTE:,} MB of disk space; {free // MEGABYTE:,} MB are free"
        raise ConfigError([("axes", f"{text} in {folder.root.name}/")])


def _check_goal(sweep: Sweep, preset: Preset, task: Task) -> None:
    metric = sweep.goal.metric
    if metric in ("bleu", "chrf") and (headline := headline_of(task)).bleu_tokenizer is None:
        text = f"goal.metric={metric!r} is measured for translations only"
        raise ConfigError([("goal.metric", f"{text}. {headline.without_bleu}" if headline.without_bleu else text)])
    if metric == "free_running_loss" and not preset.training.free_running_validation:
        raise ConfigError(
            [("goal.metric", f"goal.metric={metric!r} needs training.free_running_validation=True under set")]
        )


def _check_memory(largest: Sequence[Trial], pairs: Path | None) -> None:
    available = memory_for_runs()
    for trial in largest:
        if (needed := memory_of(trial.preset, pairs)) > available:
            text = f"{describe(trial.settings)}: a run needs about {needed // MEGABYTE:,} MB of memory; this machine "
            raise ConfigError([("axes", f"{text}has {available // MEGABYTE:,} MB for the runs of a sweep")])


def _is_missing(folder: SweepFolder, trial: Trial, seed: int) -> bool:
    """Whether a run is still to be created.

    Raises:
        RunError: there is a run of that name that this sweep did not begin.
    """
    run = folder.run(trial.name, seed)
    if not run.exists():
        return True
    if folder.record(trial.name) is None and run.read_preset() != trial.run_preset(seed):
        raise RunError(f"run={run.name!r} exists already, with another preset; give the sweep another name")
    return False


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder around it that exists."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())
