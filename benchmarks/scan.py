"""``bench scan``: the splits of SCAN, each trained with several seeds and tested on every held-out command."""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

from core.cli.arguments import preset_from
from core.config import Preset
from core.config.suites import SCAN_COMMANDS, ScanConfig
from core.evaluation.accuracy import evaluate
from core.runs import Runs
from core.storage.errors import InputError
from core.tasks import fixed_pairs

SPLITS = get_args(ScanConfig.model_fields["split"].annotation)


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train ``options.seeds`` consecutive seeds in each split; print the share of held-out commands that are right.

    Raises:
        InputError: a split has another name.
    """
    preset = preset_from(options)
    splits = options.splits.split(",") if options.splits else list(SPLITS)
    if unknown := [each for each in splits if each not in SPLITS]:
        raise InputError(f"--splits={unknown[0][:40]} must be among {', '.join(SPLITS)}")
    print(f"{'split':14} {'of':>6} {'median':>8} {'worst':>8} {'seconds':>8}  by seed")
    results = {}
    for split in splits:
        seeds = range(preset.training.seed, preset.training.seed + options.seeds)
        runs = [_measure(preset.with_changes({"task.split": split, "training.seed": seed})) for seed in seeds]
        shares = [each["exact_match"] for each in runs]
        median, worst = statistics.median(shares), min(shares)
        seconds = statistics.median(each["seconds"] for each in runs)
        by_seed = " ".join(f"{share:.2%}" for share in shares)
        print(f"{split:14} {runs[0]['of']:6,} {median:8.2%} {worst:8.2%} {seconds:8.1f}  {by_seed}", flush=True)
        results[split] = {"median": median, "worst": worst, "runs": runs}
    return results


def _measure(preset: Preset) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(Path(folder)).create(preset)
        started = time.process_time()
        with run.training() as events:
            for _ in events:
                pass
        seconds = time.process_time() - started
        trained = run.trained()
        pairs = fixed_pairs(trained.task, SCAN_COMMANDS, split="test")
        accuracy = evaluate(trained.model, pairs, task=trained.task)
    found = {"exact_match": accuracy.exact_match, "of": len(pairs), "seconds": round(seconds, 1)}
    return {"seed": preset.training.seed} | found
