"""``sweep-best``: the best trial of a sweep by the validation set, and its figures on the test set."""

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from core.cli.arguments import check_sequences
from core.config import pairs_beside, preset_to_yaml
from core.config.counting import counted
from core.reports.formatting import lengths_text
from core.runs import DEFAULT_ROOT
from core.runs.sweeps.best import Best, find_best, saved_preset
from core.runs.sweeps.folder import SweepFile, SweepFolder
from core.runs.sweeps.trials import describe
from core.storage.atomic import write_atomically
from core.storage.errors import InputError


def run(options: argparse.Namespace) -> int:
    """Print the best settings, how they were chosen, and the figures on the test set."""
    check_sequences(options.sequences)
    path: Path | None = options.save_preset
    if path is not None:
        _check_path(path)
    folder = SweepFolder(options.checkpoints or DEFAULT_ROOT, options.sweep)
    file, best = find_best(folder, sequences=options.sequences)
    _print(file, best)
    if path is not None:
        _save(file, best, folder, path)
        print(f"\nwritten: {path}; to train it: python -m core train --preset {shlex.quote(str(path))}")
    if options.json:
        print(json.dumps(_as_json(file, best)))
    return 0


def _check_path(path: Path) -> None:
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"--save-preset={str(path)[:200]} must end with .yaml")
    if path.exists():
        raise InputError(f"--save-preset={str(path)[:200]} exists already")


def _save(file: SweepFile, best: Best, folder: SweepFolder, path: Path) -> None:
    """Write the preset and, for a task of own pairs, the pairs beside it."""
    try:
        if best.preset.task.own_data:
            write_atomically(pairs_beside(path), folder.run(best.row.trial, file.seeds[0]).pairs.read_bytes())
        write_atomically(path, preset_to_yaml(saved_preset(file, best)).encode())
    except OSError as error:
        raise InputError(f"--save-preset={str(path)[:200]} cannot be written: {error.strerror or error}") from error


def _print(file: SweepFile, best: Best) -> None:
    row, metric = best.row, file.sweep.goal.metric
    print(f"best of {counted(best.candidates, 'trial')} by {metric} on the validation set: {describe(row.settings)}")
    print(f"runs {row.trial}-seed-{', '.join(map(str, file.seeds))}")
    if best.open_trials:
        print(f"not complete, and not considered: {counted(best.open_trials, 'trial')}", file=sys.stderr)
    optimistic = "; optimistic, since the trial was chosen by it" if best.candidates > 1 else ""
    print(f"validation  {metric:18} {_spread(row.mean, row.sd, row.t_interval)}{optimistic}")
    for split, lengths in best.lengths.items():
        if text := lengths_text(lengths):
            print(f"input lengths of the {split} set: {text}")
    print(f"test set, {best.sequences:,} sequences, of this trial only:")
    for name, figure in best.test.items():
        label = name.removeprefix("validation_")
        print(f"test        {label:18} {_spread(figure.spread.mean, figure.spread.sd, figure.interval)}")


def _spread(mean: float | None, sd: float | None, interval: tuple[float, float] | None) -> str:
    text = f"{mean:.6g}"
    if sd is not None and interval is not None:
        text += f" ± {sd:.2g} (mean ± standard deviation; 95 % t interval {interval[0]:.6g} to {interval[1]:.6g})"
    return text


def _as_json(file: SweepFile, best: Best) -> dict:
    test = {
        name.removeprefix("validation_"): asdict(figure.spread) | {"values": figure.values, "interval": figure.interval}
        for name, figure in best.test.items()
    }
    return {
        "sweep": file.sweep.name,
        "metric": file.sweep.goal.metric,
        "trial": best.row.as_json(),
        "candidates": best.candidates,
        "open_trials": best.open_trials,
        "test_sequences": best.sequences,
        "input_lengths": best.lengths,
        "test": test,
    }
