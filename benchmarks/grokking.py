"""``bench grokking``: when a model has memorized its training pairs, and when it answers held-out ones, by seed."""

import argparse
import statistics
import time
from typing import Any

from core.cli.arguments import preset_from
from core.config import Preset
from core.config.counting import percent
from core.config.tasks import ModularConfig
from core.evaluation.accuracy import evaluate
from core.storage.errors import InputError
from core.tasks import fixed_pairs
from core.tasks.task import Split
from core.teaching.bugs import new_state
from core.training.loop import EvaluationEvent, train

PASSES = 0.95
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train ``options.seeds`` consecutive seeds; print when the accuracy on every pair of each split passes 95 %.

    Raises:
        InputError: the preset has another task.
    """
    preset = preset_from(options)
    if not isinstance(preset.task, ModularConfig):
        raise InputError(f"task.family={preset.task.family!r} must be 'modular'")
    print(f"{'seed':>4}  " + "  ".join(f"{split:>10} {'seconds':>7}" for split in SPLITS) + "  test/train  at the end")
    seeds = range(preset.training.seed, preset.training.seed + options.seeds)
    runs = [_measure(preset.with_changes({"training.seed": seed})) for seed in seeds]
    summary: dict[str, Any] = {}
    for split in SPLITS:
        steps = [run[split]["step"] for run in runs]
        passed = [step for step in steps if step is not None]
        median = statistics.median(passed) if len(passed) == len(steps) else None
        summary[split] = {"median": median, "worst": max(passed) if median is not None else None}
        print(f"{split}: median step {_text(median)}, worst {_text(summary[split]['worst'])}")
    return {"runs": runs, "steps": summary}


def _measure(preset: Preset) -> dict[str, Any]:
    """Train one seed, and measure every pair of each split at each evaluation; its time is not counted."""
    state = new_state(preset)
    pairs = {split: fixed_pairs(state.task, preset.task.num_distinct, split=split) for split in SPLITS}
    passed: dict[str, dict[str, Any]] = {split: {"step": None, "seconds": None} for split in SPLITS}
    accuracy: dict[Split, float] = {}
    seconds, started = 0.0, time.process_time()
    for event in train(state):
        if not isinstance(event, EvaluationEvent):
            continue
        seconds += time.process_time() - started
        accuracy = {split: evaluate(state.model, pairs[split]).exact_match for split in SPLITS}
        for split in SPLITS:
            if passed[split]["step"] is None and accuracy[split] > PASSES:
                passed[split] = {"step": event.step, "seconds": round(seconds, 1)}
        started = time.process_time()
    times = "  ".join(f"{_text(each['step']):>10} {_text(each['seconds']):>7}" for each in passed.values())
    memorized, grokked = passed["train"]["step"], passed["test"]["step"]
    ratio = grokked / memorized if memorized and grokked else None
    end = ", ".join(f"{split} {percent(share, 2)} of {len(pairs[split]):,}" for split, share in accuracy.items())
    print(f"{preset.training.seed:4}  {times}  {_text(ratio and round(ratio, 1)):>10}  {end}", flush=True)
    times_of_all = {"ratio": ratio, "seconds": round(seconds, 1)}
    return {"seed": preset.training.seed, **passed, **times_of_all, "at_the_end": accuracy}


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"
