"""``train``: train a preset and keep it as a run."""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from core.config import ConfigError, Preset, load_preset, load_preset_file
from core.evaluation.spread import Spread, spread_of
from core.runs import DEFAULT_ROOT, RunError, RunFolder
from core.runs.recorder import train_recorded
from core.storage import bounded_yaml
from core.storage.errors import InputError
from core.teaching.bugs import new_state
from core.training.devices import device_named
from core.training.distributed import ProcessGroup, is_distributed, process_group
from core.training.history import History
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent, train
from core.training.state import TrainingState

MAX_SEEDS = 100
SPREAD = {  # figures told over seeds: their names for people, and how they are written
    "loss": ("validation loss", "{:.4f}"),
    "exact_match": ("exact match", "{:.2%}"),
    "token_accuracy": ("token accuracy", "{:.2%}"),
    "seconds": ("seconds", "{:.1f}"),
}


def run(options: argparse.Namespace) -> int:
    """Train new runs to their end, or until Ctrl+C or SIGTERM, which saves the one in training first."""
    preset = preset_of(options)
    device = device_named(options.device)
    root = options.checkpoints or DEFAULT_ROOT
    if options.seeds is not None:
        if is_distributed():
            raise InputError(f"--seeds={options.seeds} trains in one process; leave torchrun out")
        return _train_seeds(_seed_presets(preset, options.seeds), root, options, device)
    with process_group(preset, device) as group:
        state = new_state(preset, device=device)
        state.process_group = group
        if group.rank > 0:
            return follow(state)
        folder = RunFolder.create(root, preset, name=options.run)
        return told(train_with_bar(folder, state, History(preset.training.steps)), as_json=options.json)


def train_with_bar(folder: RunFolder, state: TrainingState, history: History) -> dict[str, Any]:
    """Train with a progress bar on standard error, and a line an evaluation and at the end on standard output.

    Returns:
        The figures of the training: its validation figures are those after the last step evaluated.
    """
    preset, should_stop = state.preset, state.process_group.should_stop
    if preset.broken:
        print(preset.broken)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_stopped_by_signals(state.process_group))
        stack.callback(folder.lock().release)
        bar = stack.enter_context(_bar(folder.name, state))
        info = train_recorded(
            folder, state, history, should_stop=should_stop, on_event=lambda event: _show(event, preset, bar)
        )
    print(f"run {folder.name}: {info.status} after {info.step} of {preset.training.steps} steps, {info.seconds:.1f} s")
    if info.message:
        print(info.message, file=sys.stderr)
    return _summary(folder.name, preset, state, info.status)


def follow(state: TrainingState) -> int:
    """Train along with the first process, which evaluates, writes and speaks for all, and return the exit code."""
    with _stopped_by_signals(state.process_group):
        for event in train(state):
            if isinstance(event, EndEvent) and event.reason == "lost":
                return 1
            if isinstance(event, StepEvent) and state.process_group.should_stop():
                break
    return 0


@contextlib.contextmanager
def _stopped_by_signals(group: ProcessGroup) -> Iterator[None]:
    """Let Ctrl+C, and SIGTERM, with which torchrun passes it on, ask for a stop inside the block."""
    signals = (signal.SIGINT, signal.SIGTERM)
    previous = {each: signal.signal(each, lambda *_: group.request_stop()) for each in signals}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def told(said: dict[str, Any], *, as_json: bool) -> int:
    """Print the figures of a training as JSON, if asked for, and return the exit code."""
    if as_json:
        print(json.dumps(said))
    return 1 if said["status"] == "failed" else 0


def _seed_presets(preset: Preset, seeds: int) -> list[Preset]:
    """Return the preset with as many seeds, from its own on."""
    if not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"--seeds={seeds} must be from 1 to {MAX_SEEDS}")
    first = preset.training.seed
    return [preset.with_changes({"training.seed": seed}) for seed in range(first, first + seeds)]


def _train_seeds(presets: list[Preset], root: Path, options: argparse.Namespace, device: str) -> int:
    """Train a run a seed, one after another, and print mean and spread of those that finished."""
    group = options.run or presets[0].name
    folders = [RunFolder(root, f"{group}-seed-{preset.training.seed}") for preset in presets]
    for folder in folders:  # all of them before the first is begun
        if folder.exists():
            raise RunError(f"run={folder.name!r} exists already; choose another name with --run")
    trained: list[dict[str, Any]] = []
    for folder, preset in zip(folders, presets, strict=True):
        RunFolder.create(root, preset, name=folder.name)
        state = new_state(preset, device=device)
        trained.append(train_with_bar(folder, state, History(preset.training.steps)))
        if trained[-1]["status"] == "stopped":
            print(f"stopped: {len(presets) - len(trained)} of {len(presets)} seeds not begun", file=sys.stderr)
            break
    finished = [said for said in trained if said["status"] == "finished"]
    spreads = {figure: spread_of([said[figure] for said in finished]) for figure in SPREAD} if finished else {}
    _print_spreads(spreads)
    status = next(each for each in ("failed", "stopped", "finished") if each in {said["status"] for said in trained})
    said = {"group": group, "status": status, "runs": trained}
    return told(said | {figure: asdict(spread) for figure, spread in spreads.items()}, as_json=options.json)


def _print_spreads(spreads: dict[str, Spread]) -> None:
    """Print a line a figure: mean ± standard deviation, and over how many runs."""
    for figure, spread in spreads.items():
        label, written = SPREAD[figure]
        sd = "" if spread.sd is None else f" ± {written.format(spread.sd)}"
        print(f"{label:24} {written.format(spread.mean)}{sd}  (mean ± standard deviation, {spread.n} seeds)")


def preset_of(options: argparse.Namespace) -> Preset:
    """Return the preset that the options name, with the changes they ask for."""
    return _preset(options.preset).with_changes(_changes(options.set, options.seed))


def _preset(name_or_path: str) -> Preset:
    is_path = name_or_path.endswith((".yaml", ".yml"))
    return load_preset_file(Path(name_or_path)) if is_path else load_preset(name_or_path)


def _changes(settings: list[str], seed: int | None) -> dict[str, Any]:
    """Read ``--set KEY=VALUE``; values are YAML, so that numbers are numbers."""
    changes: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError([(key, f"--set {setting[:60]!r} must look like training.steps=500")])
        try:
            changes[key] = bounded_yaml.load(value)
        except bounded_yaml.BoundedYamlError as error:
            raise ConfigError([(key, f"{key}: {error}")]) from error
    return changes if seed is None else changes | {"training.seed": seed}


def _bar(name: str, state: TrainingState) -> tqdm:
    quiet = 0.1 if sys.stderr.isatty() else 2.0  # in a log every redraw is a line of its own
    total = state.preset.training.steps
    return tqdm(total=total, initial=state.step, desc=name, unit="step", file=sys.stderr, mininterval=quiet)


def _show(event: Event, preset: Preset, bar: tqdm) -> None:
    if isinstance(event, StepEvent):
        bar.update(1)
    elif isinstance(event, EvaluationEvent):
        bar.write(_line(event, preset), file=sys.stdout)


def _line(event: EvaluationEvent, preset: Preset) -> str:
    """Say how an evaluation went; of a fixed training set also how often it was gone through."""
    config, figures = preset.training, event.evaluation
    parts = [f"step {event.step:{len(str(config.steps))}}"]
    if config.training_sequences:
        parts.append(f"epoch {event.step * config.sequences_per_step / config.training_sequences:6.2f}")
    parts.append("train loss      –" if event.train_loss is None else f"train loss {event.train_loss:6.4f}")
    parts += [f"validation loss {figures.loss:6.4f}", f"exact match {figures.exact_match:6.1%}"]
    return "  ".join([*parts, "best so far"] if event.is_best else parts)


def _summary(name: str, preset: Preset, state: TrainingState, status: str) -> dict[str, Any]:
    last = state.last_evaluation
    return {
        "run": name,
        "status": status,
        "preset": preset.name,
        "parameters": sum(parameter.numel() for parameter in state.model.parameters()),
        "sequences": last.sequences if last else 0,
        "exact_match": last.exact_match if last else None,
        "token_accuracy": last.token_accuracy if last else None,
        "loss": last.loss if last else None,
        "perplexity": last.perplexity if last else None,
        "steps": state.step,
        "sequences_seen": state.sequences_seen,
        "seconds": round(state.seconds, 3),
    }
