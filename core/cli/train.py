"""``train``: train a preset and save it as a run."""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from core.cli.arguments import changed_preset, named_preset, pairs_from, preset_from, recorded_command
from core.cli.signals import print_or_stop, stopped_by_signals
from core.config import Preset
from core.config.counting import percent
from core.evaluation.headline import bleu_name_of, headline_of
from core.evaluation.significance import Spread
from core.runs import DEFAULT_ROOT, RunError, RunFolder, Runs
from core.runs.logs import check_logs
from core.runs.starting import Start, fit
from core.runs.training import Training, training
from core.runs.training_state import resume_state
from core.storage.errors import InputError
from core.teaching.bugs import new_state
from core.teaching.bugs.descriptions import bug_notice
from core.training.devices import device_named
from core.training.distributed import ProcessGroup, is_distributed, process_group
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent, train
from core.training.memory import memory_warning
from core.training.state import TrainingState

MAX_SEEDS = 100
_percent = partial(percent, digits=2)
SPREAD: dict[
    str, tuple[str, Callable[[float], str]]
] = {  # figures over seeds, where measured: label and how to write one
    "loss": ("validation loss", "{:.4f}".format),
    "bleu": ("BLEU", "{:.2f}".format),
    "chrf": ("chrF", "{:.2f}".format),
    "exact_match": ("exact match", _percent),
    "token_accuracy": ("token accuracy", _percent),
    "seconds": ("seconds", "{:.1f}".format),
}


@dataclass(frozen=True)
class _NewRun:
    """A run to create; it begins with the weights of another run if there is a ``start``."""

    preset: Preset
    pairs: Path | None
    start: Start | None = None

    def create(self, root: Path, name: str | None) -> RunFolder:
        """Create its folder."""
        contents = self.start.contents() if self.start else {}
        return RunFolder.create(root, self.preset, name=name, pairs=self.pairs, contents=contents)

    def state(self, device: str) -> TrainingState:
        """Build its state without its folder, as the processes of rank above 0 do, which write nothing."""
        if self.start is None:
            return new_state(self.preset, device=device, pairs=self.pairs)
        with tempfile.TemporaryDirectory() as temporary:
            return resume_state(self.create(Path(temporary), None), device=device)


def run(options: argparse.Namespace) -> int:
    """Train to the end, or until Ctrl+C or SIGTERM, which save the run before the program exits."""
    device, logs = device_named(options.device), check_logs(options.log)
    root = options.checkpoints or DEFAULT_ROOT
    with _new_run(options, root) as new:
        warn_of_memory(new.preset, device, new.pairs)
        if options.seeds is not None:
            if is_distributed():
                raise InputError(f"--seeds={options.seeds} trains in one process; leave torchrun out")
            return _train_seeds(new, _seed_presets(new.preset, options.seeds), root, options, device)
        with process_group(new.preset, device) as group:
            if group.rank > 0:
                state = new.state(device)
                state.process_group = group
                return follow(state)
            prepared = None if new.start else new.state(device)  # raises before the folder is there
            if prepared is not None:
                prepared.process_group = group
            folder = new.create(root, options.run)
            command = recorded_command(options)
            with (
                stopped_by_signals(group.request_stop) as signals,
                training(folder, prepared, device=device, process_group=group, command=command, logs=logs) as run,
            ):
                train_with_bar(run)
            return print_result(*report_end(run, signals), as_json=options.json)


@contextmanager
def _new_run(options: argparse.Namespace, root: Path) -> Iterator[_NewRun]:
    """Yield the run that ``--preset``, ``--from`` and ``--set`` describe; its pairs last as long as the block."""
    if options.start_from is None:
        yield _NewRun(preset_from(options), pairs_from(options))
        return
    other = Runs(root)[options.start_from].folder
    base = named_preset(options.preset) if options.preset else other.read_preset()
    with tempfile.TemporaryDirectory() as temporary:
        start = fit(other, changed_preset(base, options), Path(temporary), pairs=pairs_from(options))
        yield _NewRun(start.preset, start.pairs, start)


def warn_of_memory(preset: Preset, device: str, pairs: Path | None) -> None:
    """Say on standard error if training takes more memory than there is."""
    if warning := memory_warning(preset, device, pairs):
        print(f"warning: {warning}", file=sys.stderr)


def train_with_bar(run: Training) -> None:
    """Train with a progress bar on the terminal, if there is one, and print one line per evaluation.

    A sentence is printed when the run begins to overfit.

    Stops after the update at which all processes agree to stop, see ``ProcessGroup.request_stop``.
    """
    state = run.state
    if notice := bug_notice(state.preset):
        print(notice)
    overfits = ""
    with _bar(run.folder.name, state) as bar:
        for event in run:
            _show(event, state, bar)
            if isinstance(event, EvaluationEvent):
                known, overfits = overfits, run.history.overfitting(state.best_step)
                if overfits and not known:
                    print_or_stop(overfits, state.process_group.request_stop, bar)
            if isinstance(event, StepEvent) and state.process_group.should_stop():
                break


def report_end(run: Training, signals: Sequence[int]) -> tuple[dict[str, Any], int]:
    """Print how a training ended whose context was left.

    Args:
        signals: those that have told it to stop.

    Returns:
        The figures of the training, of which the validation figures are those of the last evaluation; and the exit
        code: 0, 1 if it failed, or 128 + the number of the signal that stopped it, as shells report it.
    """
    name, preset, info = run.folder.name, run.state.preset, run.info
    print(f"run {name}: {info.status} after {info.step} of {preset.training.steps} steps, {info.seconds:.1f} s")
    if info.message:
        print(info.message, file=sys.stderr)
    if overfits := run.history.overfitting(info.best_step):
        print(overfits)
    codes: dict[str, int] = {"finished": 0, "failed": 1}
    stopped_by = signals[0] if signals else signal.SIGTERM  # without one, another process was told to stop
    return _summary(name, preset, run.state, info.status), codes.get(info.status, 128 + stopped_by)


def follow(state: TrainingState) -> int:
    """Train as a process of rank above 0, which neither evaluates, writes nor prints, and return the exit code.

    The code is 0 for a training that was stopped: with another one, torchrun would end the process that is saving it.
    """
    with stopped_by_signals(state.process_group.request_stop):
        for event in train(state):
            if isinstance(event, EndEvent) and event.reason == "lost":
                return 1
            if isinstance(event, StepEvent) and state.process_group.should_stop():
                break
    return 0


def print_result(result: dict[str, Any], code: int, *, as_json: bool) -> int:
    """Print the figures of a training as JSON if requested, and return its exit code."""
    if as_json:
        print(json.dumps(result))
    return code


def _seed_presets(preset: Preset, seeds: int) -> list[Preset]:
    """Return the preset with consecutive seeds, starting from its own."""
    if not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"--seeds={seeds} must be from 1 to {MAX_SEEDS}")
    first = preset.training.seed
    return [preset.with_changes({"training.seed": seed}) for seed in range(first, first + seeds)]


def _train_seeds(new: _NewRun, presets: list[Preset], root: Path, options: argparse.Namespace, device: str) -> int:
    """Train one run per seed, one after another, and print mean and standard deviation of those that finished."""
    group = options.run or presets[0].name
    folders = [RunFolder(root, f"{group}-seed-{preset.training.seed}") for preset in presets]
    for folder in folders:  # check all names before the first training starts
        if folder.exists():
            raise RunError(f"run={folder.name!r} exists already; choose another name with --run")
    command, logs = recorded_command(options), check_logs(options.log)
    trained: list[dict[str, Any]] = []
    codes: list[int] = []
    for folder, preset in zip(folders, presets, strict=True):
        replace(new, preset=preset).create(root, folder.name)
        alone = ProcessGroup()
        with (
            stopped_by_signals(alone.request_stop) as signals,
            training(folder, device=device, process_group=alone, command=command, logs=logs) as run,
        ):
            train_with_bar(run)
        figures, code = report_end(run, signals)
        trained.append(figures)
        codes.append(code)
        if trained[-1]["status"] == "stopped":
            print(f"stopped: {len(presets) - len(trained)} of {len(presets)} seeds not started", file=sys.stderr)
            break
    finished = [result for result in trained if result["status"] == "finished"]
    measured = [figure for figure in SPREAD if finished and finished[0][figure] is not None]
    spreads = {figure: Spread.of([result[figure] for result in finished]) for figure in measured}
    _print_spreads(spreads, bleu_name=trained[0]["bleu_name"] or "")
    statuses = {result["status"] for result in trained}
    status = next(each for each in ("failed", "stopped", "finished") if each in statuses)
    summary = {"group": group, "status": status, "runs": trained}
    summary |= {figure: asdict(spread) for figure, spread in spreads.items()}
    return print_result(summary, max(codes), as_json=options.json)


def _print_spreads(spreads: dict[str, Spread], *, bleu_name: str) -> None:
    """Print one line per figure: mean ± standard deviation, and the number of runs."""
    for figure, spread in spreads.items():
        label, text_of = SPREAD[figure]
        label = bleu_name if figure == "bleu" else label
        sd = "" if spread.sd is None else f" ± {text_of(spread.sd)}"
        print(f"{label:24} {text_of(spread.mean)}{sd}  (mean ± standard deviation, {spread.n} seeds)")


def _bar(name: str, state: TrainingState) -> tqdm:
    total = state.preset.training.steps
    return tqdm(total=total, initial=state.step, desc=name, unit="step", file=sys.stderr, disable=None)


def _show(event: Event, state: TrainingState, bar: tqdm) -> None:
    if isinstance(event, StepEvent):
        bar.update(1)
    elif isinstance(event, EvaluationEvent):
        print_or_stop(_line(event, state), state.process_group.request_stop, bar)


def _line(event: EvaluationEvent, state: TrainingState) -> str:
    """Format an evaluation; with a fixed training set, also the number of epochs."""
    config, figures = state.preset.training, event.evaluation
    parts = [f"step {event.step:{len(str(config.steps))}}"]
    if config.training_sequences:
        parts.append(f"epoch {state.sequences_seen / config.training_sequences:6.2f}")
    parts.append("train loss      –" if event.train_loss is None else f"train loss {event.train_loss:6.4f}")
    parts.append(f"validation loss {figures.loss:6.4f}")
    if figures.free_running_loss is not None:
        parts.append(f"free-running {figures.free_running_loss:6.4f}")
    parts += _scores(event, state)
    if figures.train_exact_match is not None:
        parts.append(f"on training pairs {percent(figures.train_exact_match):>6}")
    parts += [f"{name} {value:6.4f}" for name, value in figures.metrics.items()]
    return "  ".join([*parts, "best so far"] if event.is_best else parts)


def _scores(event: EvaluationEvent, state: TrainingState) -> list[str]:
    """Format the figures that decide, the first first; chrF follows BLEU, and exact match ends the line."""
    figures, parts = event.evaluation, []
    for each in figures.figures(state.task):
        if each.measure == "bleu":
            parts.append(f"{each.name} {each.value:5.1f}  chrF {figures.chrf:5.1f}")
        elif each.measure == "perplexity":
            parts.append(f"{each.name} {each.value:6.2f}")
        else:
            parts.append(f"{each.name} {percent(each.value):>6}")
    if not any(part.startswith("exact match") for part in parts):
        parts.append(f"exact match {percent(figures.exact_match):>6}")
    return parts


def _summary(name: str, preset: Preset, state: TrainingState, status: str) -> dict[str, Any]:
    last, tokenizer = state.last_evaluation, headline_of(state.task).bleu_tokenizer
    return {
        "run": name,
        "status": status,
        "preset": preset.name,
        "parameters": sum(parameter.numel() for parameter in state.model.parameters()),
        "sequences": last.sequences if last else 0,
        "headline": [figure.model_dump() for figure in last.figures(state.task)] if last else [],
        "exact_match": last.exact_match if last else None,
        "token_accuracy": last.token_accuracy if last else None,
        "train_exact_match": last.train_exact_match if last else None,
        "train_token_accuracy": last.train_token_accuracy if last else None,
        "bleu_name": tokenizer and bleu_name_of(tokenizer),
        "bleu": last.bleu if last else None,
        "chrf": last.chrf if last else None,
        "loss": last.loss if last else None,
        "free_running_loss": last.free_running_loss if last else None,
        "perplexity": last.perplexity if last else None,
        "metrics": last.metrics if last else {},
        "steps": state.step,
        "sequences_seen": state.sequences_seen,
        "seconds": round(state.seconds, 3),
    }
