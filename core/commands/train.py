"""``train``: train a preset and keep it as a run."""

import argparse
import contextlib
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tqdm import tqdm

from core import bounded_yaml
from core.config import ConfigError, Preset, load_preset, load_preset_file
from core.devices import device_named
from core.history import History
from core.recording import train_recorded
from core.run_folder import DEFAULT_ROOT, RunFolder
from core.training import EvaluationEvent, Event, StepEvent, TrainingState, new_state


def run(options: argparse.Namespace) -> int:
    """Train a new run to its end, or until Ctrl+C, which saves it first."""
    preset = preset_of(options)
    device = device_named(options.device)
    folder = RunFolder.create(options.checkpoints or DEFAULT_ROOT, preset, name=options.run)
    return train_with_bar(
        folder, new_state(preset, device=device), History(preset.training.steps), as_json=options.json
    )


def train_with_bar(folder: RunFolder, state: TrainingState, history: History, *, as_json: bool) -> int:
    """Train with a progress bar on standard error, and a line an evaluation and a summary on standard output."""
    stop = threading.Event()
    previous = signal.signal(signal.SIGINT, lambda *_: stop.set())
    preset = state.preset
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(folder.lock().release)
            bar = stack.enter_context(_bar(folder.name, state))
            info = train_recorded(
                folder, state, history, should_stop=stop.is_set, on_event=lambda event: _show(event, preset, bar)
            )
    finally:
        signal.signal(signal.SIGINT, previous)
    print(f"run {folder.name}: {info.status} after {info.step} of {preset.training.steps} steps, {info.seconds:.1f} s")
    if info.message:
        print(info.message, file=sys.stderr)
    if as_json:
        print(json.dumps(_summary(folder.name, preset, state, info.status)))
    return 1 if info.status == "failed" else 0


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
    """Return the figures of a training: its validation figures are those after the last step evaluated."""
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
