"""``bench sweeps``: the overhead of a run of a sweep.

It is measured with short trainings: the time for which a run occupies a slot of the sweep, minus its training time.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from core.runs import RunFolder

REPOSITORY = Path(__file__).resolve().parents[1]
SHORT_RUNS = 12
_SHORT = """
name: short
preset: tiny
set: {training.evaluate_every: 10, training.warmup_steps: 1, training.validation_sequences: 32}
axes: {training.learning_rate: RATES}
goal: {updates: 10}
"""


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print a table."""
    runs = []
    places = [("--jobs 1", ["--jobs", "1"])]
    if options.ray:
        places.append((f"--jobs 1 --ray {options.ray}", ["--jobs", "1", "--ray", options.ray]))
    print(f"a run beside its training, mean of {SHORT_RUNS} one after another")
    for name, words in places:
        seconds = _overhead(words)
        runs.append({"place": name, "seconds": seconds})
        print(f"  {name:40} {seconds:6.2f} s")
    return {"runs": runs}


def _overhead(words: list[str]) -> float:
    """Return the mean overhead of a run, without the start of the sweep and its first run."""
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "runs", Path(folder) / "short.yaml"
        rates = [round(1e-4 * (i + 1), 4) for i in range(SHORT_RUNS)]
        file.write_text(_SHORT.replace("RATES", str(rates)), encoding="utf-8")
        command = [sys.executable, "-m", "core", "--checkpoints", str(root), "sweep", str(file), *words]
        subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - own program
        ended = sorted((path.stat().st_mtime, path.parent.name) for path in root.glob("*/run.json"))
        trained = [RunFolder(root, name).read_info().seconds for _, name in ended[1:]]
        return (ended[-1][0] - ended[0][0]) / len(trained) - fmean(trained)
