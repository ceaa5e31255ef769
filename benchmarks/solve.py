"""``bench solve``: time until a preset solves its task, compared with a baseline model of the same sizes.

The baseline is the tutorials' recipe: ``torch.nn``'s Transformer layers, Adam with a constant learning rate of 1e-3,
batches of 64. A task counts as solved if free-running greedy decoding produces 99.9 % of 10,000 held-out sequences
exactly. A preset is trained to its last step and measured once. The baseline, which has no last step, is measured every
50 steps until it passes. Only data and updates are timed. Both train on fresh sequences of the same task.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.baseline import BaselineTransformer, build_baseline
from core.cli.arguments import preset_from
from core.config import Preset
from core.config.counting import percent
from core.evaluation.accuracy import evaluate, sequence_loss
from core.evaluation.outputs import is_exact
from core.evaluation.passes import CHUNK
from core.models import count_parameters
from core.tasks import Batch, build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.training.loop import StepEvent, train

TARGET, TEST_SEQUENCES = 0.999, 10_000
BASELINE_LEARNING_RATE, BASELINE_BATCH_SIZE = 1e-3, 64
BASELINE_EVALUATE_EVERY, BASELINE_MAX_STEPS = 50, 6_000
_WARM_UP_STEPS = 10


@dataclass(frozen=True)
class SolveRun:
    """One training run.

    Attributes:
        steps: updates made.
        seconds: processor time of data and updates.
        exact_match: fraction of the held-out sequences decoded exactly, 0-1; an upper bound for a baseline that fails.
    """

    seed: int
    steps: int
    seconds: float
    exact_match: float

    @property
    def is_solved(self) -> bool:
        """Whether the run reached the target."""
        return self.exact_match >= TARGET


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train with ``options.seeds`` consecutive seeds, beginning with the preset's, and print a table."""
    preset = preset_from(options)
    if options.baseline:
        build_baseline(preset)  # raise now if it is missing, not after hours of training
    test_pairs = fixed_pairs(build_task(preset.task), TEST_SEQUENCES, split="test")
    solve_with_preset(_shorten(preset), test_pairs[:1])  # warm up
    _print_header(preset, with_baseline=options.baseline)
    ours: list[SolveRun] = []
    baseline: list[SolveRun] = []
    for seed in range(preset.training.seed, preset.training.seed + options.seeds):
        seeded = preset.with_changes({"training.seed": seed})
        ours.append(solve_with_preset(seeded, test_pairs))
        if options.baseline:
            baseline.append(solve_with_baseline(seeded, test_pairs))
        _print_row(ours[-1], baseline[-1] if baseline else None)
    _print_summary(ours, baseline)
    return {
        "preset": preset.name,
        "ours": [asdict(run) for run in ours],
        "baseline": [asdict(run) for run in baseline],
    }


def solve_with_preset(preset: Preset, test_pairs: Batch) -> SolveRun:
    """Train a preset to its last step."""
    state = new_state(preset)
    seconds, started = 0.0, time.process_time()
    for event in train(state):
        if isinstance(event, StepEvent):
            seconds += time.process_time() - started
        started = time.process_time()
    state.model.eval()
    return SolveRun(preset.training.seed, state.step, seconds, evaluate(state.model, test_pairs).exact_match)


def solve_with_baseline(preset: Preset, test_pairs: Batch) -> SolveRun:
    """Train the baseline with the preset's seed until it passes, at most ``BASELINE_MAX_STEPS`` steps."""
    seconds, exact_match, steps = 0.0, 0.0, 0
    started = time.process_time()
    for steps, model in enumerate(_baseline_updates(preset), start=1):
        if steps % BASELINE_EVALUATE_EVERY == 0:
            seconds += time.process_time() - started
            exact_match = _exact_match(model, test_pairs)
            started = time.process_time()
        if exact_match >= TARGET or steps == BASELINE_MAX_STEPS:
            break
    return SolveRun(preset.training.seed, steps, seconds, exact_match)


def _baseline_updates(preset: Preset) -> Iterator[BaselineTransformer]:
    """Yield the baseline after each update, without end."""
    task, seed = build_task(preset.task), preset.training.seed
    torch.manual_seed(seed)
    model = build_baseline(preset)
    optimizer = torch.optim.Adam(model.parameters(), lr=BASELINE_LEARNING_RATE)
    generator = torch.Generator().manual_seed(seed)
    while True:
        batch = task.sample(BASELINE_BATCH_SIZE, split="train", generator=generator)
        optimizer.zero_grad()
        sequence_loss(model(batch.src, batch.tgt_in), batch.tgt_out).backward()
        optimizer.step()
        yield model


def _exact_match(model: BaselineTransformer, pairs: Batch) -> float:
    """Return the fraction of sequences decoded exactly or, once the target is out of reach, an upper bound."""
    wrong, allowed = 0, round((1 - TARGET) * len(pairs))
    model.eval()
    for start in range(0, len(pairs), CHUNK):
        chunk = pairs[start : start + CHUNK]
        tokens = model.greedy(chunk.src, max_steps=chunk.tgt_out.shape[1])
        wrong += int((~is_exact(tokens, chunk.tgt_out)).sum())
        if wrong > allowed:  # it fails already, and decoding the rest takes long
            break
    model.train()
    return 1 - wrong / len(pairs)


def _shorten(preset: Preset) -> Preset:
    changes = {"training.steps": _WARM_UP_STEPS, "training.warmup_steps": 0, "training.validation_sequences": 1}
    return preset.with_changes(changes)


def _print_header(preset: Preset, *, with_baseline: bool) -> None:
    parameters = count_parameters(new_state(preset).model)
    print(f"{preset.name}, {parameters:,} parameters, on the CPU, 1 thread; seconds of processor time")
    print(f"exact match on {TEST_SEQUENCES:,} held-out sequences, free-running; solved: at least {percent(TARGET)}")
    baseline = f"   baseline, batches of {BASELINE_BATCH_SIZE}" if with_baseline else ""
    print(f"{'seed':>6}   {f'this preset, batches of {preset.sequences_per_step}':32}{baseline}")


def _print_row(ours: SolveRun, baseline: SolveRun | None) -> None:
    ratio = f"   {baseline.seconds / ours.seconds:.1f} ×" if baseline else ""
    print(f"{ours.seed:>6}   {_format(ours):32}{_format(baseline) if baseline else '':35}{ratio}", flush=True)


def _format(run: SolveRun) -> str:
    end = "" if run.is_solved else " not solved"
    return f"{run.steps:,} steps {run.seconds:6.1f} s {percent(run.exact_match, 2)}{end}"


def _print_summary(ours: list[SolveRun], baseline: list[SolveRun]) -> None:
    seconds = [run.seconds for run in ours]
    print(f"solved {sum(run.is_solved for run in ours)} of {len(ours)}; ", end="")
    print(f"median {median(seconds):.1f} s, worst {max(seconds):.1f} s")
    if baseline:
        ratios = [other.seconds / own.seconds for own, other in zip(ours, baseline, strict=True)]
        print(f"baseline ÷ this preset: median {median(ratios):.1f} ×, worst {min(ratios):.1f} ×")
