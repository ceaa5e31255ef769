"""``bench suite``: a preset with every value of one setting, each trained with several seeds and tested.

The splits of SCAN and of PCFG SET are tested on every held-out input, the formal languages on inputs longer than any
trained on, COGS on its test sentences and on each of its generalization sets.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

import torch

from core.cli.arguments import preset_from
from core.cli.compare import lengths_of
from core.config import Preset
from core.config.counting import percent
from core.config.sections import Section
from core.evaluation.accuracy import evaluate
from core.evaluation.breakdown import BreakdownAccuracy, measure_breakdown
from core.evaluation.by_length import accuracy_by_length
from core.interpret.trained import Trained
from core.runs import Runs
from core.storage.errors import InputError
from core.tasks import Breakdown
from core.tasks.task import PairDataset
from core.teaching.bugs import new_state

LENGTH_STEP = 9  # of a range of lengths: every ninth, so that odd and even ones take turns


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train ``options.seeds`` consecutive seeds with each value of ``options.each``; print the share that is right.

    Raises:
        InputError: the preset has no such setting, or it has another value or any number of values; or the lengths are
            not a range; or the task has no test sets.
    """
    preset = preset_from(options)
    values = _values(preset, options)
    lengths = lengths_of(options.lengths)
    _check_tests(preset.with_changes({options.each: values[0]}), lengths, options.per_set)
    figures = ["exact match", *["tokens"] * (lengths is not None), *["test sets"] * bool(options.per_set)]
    columns = "".join(f"{figure:>12} {'worst':>8}" for figure in figures)
    print(f"{options.each:22}{columns} {'seconds':>8}  exact match by seed")
    results = {}
    for value in values:
        seeds = range(preset.training.seed, preset.training.seed + options.seeds)
        changed = [preset.with_changes({options.each: value, "training.seed": seed}) for seed in seeds]
        runs = [_measure(each, lengths, options) for each in changed]
        shares = {figure: [each[figure.replace(" ", "_")] for each in runs] for figure in figures}
        found = {figure: (statistics.median(each), min(each)) for figure, each in shares.items()}
        cells = "".join(f"{median:12.2%} {worst:8.2%}" for median, worst in found.values())
        seconds = statistics.median(each["seconds"] for each in runs)
        by_seed = " ".join(f"{percent(share, 2)}" for share in shares["exact match"])
        print(f"{value:22}{cells} {seconds:8.1f}  {by_seed}", flush=True)
        for name in runs[0].get("by_set", ()):
            of_set = [each["by_set"][name] for each in runs]
            print(f"  {name:48} {statistics.median(of_set):8.2%} {min(of_set):8.2%}")
        median, worst = found["exact match"]
        results[value] = {"median": median, "worst": worst, "runs": runs}
    return results


def _values(preset: Preset, options: argparse.Namespace) -> Sequence[str]:
    """Return the values to train: those named, or all that the setting can have."""
    sections: dict[str, Section] = {"task": preset.task, "model": preset.model}
    section, _, name = options.each.partition(".")
    field = type(sections[section]).model_fields.get(name) if section in sections else None
    choices = get_args(field.annotation) if field else ()
    if not choices or not all(isinstance(each, str) for each in choices):
        raise InputError(f"--each={options.each[:60]} must be a setting of the task or model with a list of values")
    values = options.values.split(",") if options.values else choices
    if unknown := [each for each in values if each not in choices]:
        raise InputError(f"--values={unknown[0][:40]} must be among {', '.join(choices)}")
    return values


def _check_tests(preset: Preset, lengths: range | None, per_set: int) -> None:
    """Raise InputError, before anything is trained, if a preset cannot be tested on what was asked for."""
    state = new_state(preset)
    if per_set and state.task.breakdown(1, generator=torch.Generator()) is None:
        raise InputError(f"--per-set={per_set} must be 0: the task has no test sets")
    if lengths is None:
        if state.task.all_pairs("test") is None:
            raise InputError("--lengths is required: the task draws its inputs, so there are no pairs to test on")
        return
    longest = accuracy_by_length(state.model, state.task, lengths=lengths[::LENGTH_STEP][-1:], per_length=1)
    if longest and longest.limit:
        raise InputError(f"--lengths={lengths[0]}-{lengths[-1]}: {longest.limit}")


def _measure(preset: Preset, lengths: range | None, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(Path(folder)).create(preset)
        started = time.process_time()
        with run.training() as events:
            for _ in events:
                pass
        seconds = time.process_time() - started
        trained = run.trained()
        found = {"seed": preset.training.seed, "seconds": round(seconds, 1)}
        found |= _test(trained, lengths, options.per_length)
        return found | (_test_sets(trained, options.per_set) if options.per_set else {})


def _test_sets(trained: Trained, per_set: int) -> dict[str, Any]:
    """Test on pairs of each of the task's test sets."""
    sets = cast(Breakdown, trained.task.breakdown(1, generator=torch.Generator()))
    sequences = per_set * len(sets.groups)
    found = cast(BreakdownAccuracy, measure_breakdown(trained.model, trained.task, sequences=sequences))
    return {"test_sets": found.exact_match, "by_set": {each.name: each.exact_match for each in found.groups}}


def _test(trained: Trained, lengths: range | None, per_length: int) -> dict[str, Any]:
    """Test on every held-out pair of a finite task, or on inputs of every ninth length of a range."""
    if lengths is None:
        pairs = cast(PairDataset, trained.task.all_pairs("test"))
        batch = pairs[torch.arange(len(pairs))]
        return {"exact_match": evaluate(trained.model, batch, task=trained.task).exact_match, "of": len(batch)}
    tested = lengths[::LENGTH_STEP]
    found = accuracy_by_length(trained.model, trained.task, lengths=tested, per_length=per_length)
    if found is None:
        raise InputError(f"--lengths={lengths[0]}-{lengths[-1]}: no inputs of these lengths")
    mean = found.mean(tested)
    by_length = {each.length: each.token_accuracy for each in found.points}
    return {"exact_match": mean.exact_match, "tokens": mean.token_accuracy, "tokens_by_length": by_length}
