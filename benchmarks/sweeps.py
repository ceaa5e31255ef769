"""``bench sweeps``: the table of a large sweep, and the overhead of a run of a sweep.

The table consists of made-up runs, read by the command in its own process. The overhead of a run is measured with short
trainings: the time for which it occupies a slot of the sweep, minus its training time.
"""

import argparse
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from core.config import load_preset
from core.runs import RunFolder, RunInfo, ValidationFigures
from core.runs.sweeps.folder import SweepFile, SweepFolder, TrialRecord
from core.runs.sweeps.sweep import parse_sweep
from core.runs.sweeps.trials import grid_trials
from core.storage.errors import LabError

REPOSITORY = Path(__file__).resolve().parents[1]
TRIALS = (100, 1_000)
SEEDS = 3
ROUNDS = 3
TARGET_SECONDS = 2.0
SHORT_RUNS = 12
_MEGABYTE = 1_000_000
_SHORT = """
name: short
preset: tiny
set: {training.evaluate_every: 10, training.warmup_steps: 1, training.validation_sequences: 32}
axes: {training.learning_rate: RATES}
goal: {updates: 10}
"""
_SCRIPT = """
import resource, sys
from core.__main__ import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
sys.exit(code)
"""


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print both."""
    results: dict[str, Any] = {"table": [], "runs": []}
    print(f"python -m core sweep-table, {SEEDS} seeds a trial, best of {ROUNDS}; at most {TARGET_SECONDS:g} s wanted")
    with tempfile.TemporaryDirectory() as folder:
        for trials in TRIALS:
            root = Path(folder) / str(trials)
            write_sweep(root, trials)
            measured = [_table(root) for _ in range(ROUNDS)]
            seconds, memory = min(each[0] for each in measured), max(each[1] for each in measured)
            results["table"].append({"trials": trials, "seconds": seconds, "peak_memory": memory})
            print(f"  {trials:>6,} trials  {seconds:6.2f} s  {memory / _MEGABYTE:6.0f} MB at most")
    places = [("--jobs 1", ["--jobs", "1"])]
    if options.ray:
        places.append((f"--jobs 1 --ray {options.ray}", ["--jobs", "1", "--ray", options.ray]))
    print(f"a run beside its training, mean of {SHORT_RUNS} one after another")
    for name, words in places:
        seconds = _overhead(words)
        results["runs"].append({"place": name, "seconds": seconds})
        print(f"  {name:40} {seconds:6.2f} s")
    return results


def write_sweep(root: Path, trials: int) -> None:
    """Write a sweep with finished runs and made-up metrics.

    Args:
        trials: number of trials, a multiple of 4.
    """
    base = load_preset("tiny")
    rates = [round(1e-5 * (i + 1), 6) for i in range(trials // 4)]
    sweep = parse_sweep(
        {
            "name": "table",
            "preset": "tiny",
            "axes": {"model.d_model": [16, 32, 48, 64], "training.learning_rate": rates},
            "seeds": SEEDS,
        }
    )
    folder = SweepFolder(root, sweep.name)
    folder.prepare(SweepFile(sweep=sweep, base=base), extend=False)
    (folder.path / "trials").mkdir()
    for i, trial in enumerate(grid_trials(sweep, base)):
        path = folder.path / "trials" / f"{trial.name}.json"  # not write_record, which waits for the disk
        path.write_text(TrialRecord(settings=trial.settings).model_dump_json(), encoding="utf-8")
        for seed in range(SEEDS):
            figures = ValidationFigures(validation_loss=2 + math.sin(i + seed), token_accuracy=0.5, exact_match=0.5)
            info = RunInfo(status="finished", validation=figures, seconds=2.0, parameters=10_000)
            run = RunFolder(root, trial.run(seed))
            run.path.mkdir()
            (run.path / "run.json").write_text(info.model_dump_json(indent=1), encoding="utf-8")


def _table(root: Path) -> tuple[float, int]:
    """Return seconds and peak memory in bytes of the whole command."""
    begun = time.perf_counter()
    done = _run([sys.executable, "-c", _SCRIPT, "--checkpoints", str(root), "sweep-table", "table"])
    return time.perf_counter() - begun, int(done.stderr.split()[-1])


def _overhead(words: list[str]) -> float:
    """Return the mean overhead of a run, without the start of the sweep and its first run."""
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "runs", Path(folder) / "short.yaml"
        rates = [round(1e-4 * (i + 1), 4) for i in range(SHORT_RUNS)]
        file.write_text(_SHORT.replace("RATES", str(rates)), encoding="utf-8")
        _run([sys.executable, "-m", "core", "--checkpoints", str(root), "sweep", str(file), *words])
        ended = sorted((path.stat().st_mtime, path.parent.name) for path in root.glob("*/run.json"))
        trained = [RunFolder(root, name).read_info().seconds for _, name in ended[1:]]
        return (ended[-1][0] - ended[0][0]) / len(trained) - fmean(trained)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S603 - own program
    if done.returncode:
        raise LabError(f"{' '.join(command[3:])[:200]}: {done.stderr.strip()[-300:]}")
    return done
