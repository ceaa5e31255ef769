"""``bench solve``: the time a preset takes to solve its task, beside the plain recipe with a model of the same sizes.

The plain recipe is the tutorials': ``nn.Transformer``'s parts, Adam at a constant 1e-3, batches of 64. Solved means:
free-running decoding writes 99.9 % of 10,000 held-out sequences exactly. A preset runs to its end and is measured once;
the plain recipe, which has no end, is measured every 50 steps, and the first time it passes counts. Measuring, and
warming the process up, is not timed. Both train on fresh sequences of the same task.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.plain_transformer import PlainTransformer, rival_of
from core.cli.arguments import preset_from
from core.config import Preset
from core.evaluation.accuracy import CHUNK, evaluate, is_exact, sequence_loss
from core.models import count_parameters
from core.tasks import Batch, build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.training.loop import StepEvent, train

TARGET, HELD_OUT = 0.999, 10_000
PLAIN_RATE, PLAIN_BATCH, PLAIN_EVERY = 1e-3, 64, 50
PLAIN_MOST = 6_000
_WARM_UP_STEPS = 10


@dataclass(frozen=True)
class Solved:
    """One training.

    Attributes:
        steps: updates made, of ``batch_size`` sequences each.
        seconds: of processor time, for data, updates and nothing else.
        exact_match: share of the held-out sequences written exactly, 0-1; of a plain one that fails, at most so much.
    """

    seed: int
    steps: int
    seconds: float
    exact_match: float

    @property
    def is_solved(self) -> bool:
        """Whether it reached the target."""
        return self.exact_match >= TARGET


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Train with several seeds, the preset's and those behind it, each beside the rival's; print a table."""
    preset = preset_from(options)
    if not options.alone:
        rival_of(preset)  # or say that there is none before hours of training
    held_out = fixed_pairs(build_task(preset.task), HELD_OUT, split="test")
    solve_preset(_shorter(preset), held_out[:1])
    _print_head(preset, has_rival=not options.alone)
    ours, plain = [], []
    for seed in range(preset.training.seed, preset.training.seed + options.seeds):
        seeded = preset.with_changes({"training.seed": seed})
        ours.append(solve_preset(seeded, held_out))
        if not options.alone:
            plain.append(solve_plainly(seeded, held_out))
        _print_row(ours[-1], plain[-1] if plain else None)
    _print_summary(ours, plain)
    rows = {"ours": ours, "plain": plain}
    return {"preset": preset.name} | {name: [asdict(each) for each in runs] for name, runs in rows.items()}


def solve_preset(preset: Preset, held_out: Batch) -> Solved:
    """Train a preset to its end."""
    state = new_state(preset)
    seconds, before = 0.0, time.process_time()
    for event in train(state):
        if isinstance(event, StepEvent):
            seconds += time.process_time() - before
        before = time.process_time()
    state.model.eval()
    return Solved(preset.training.seed, state.step, seconds, evaluate(state.model, held_out).exact_match)


def solve_plainly(preset: Preset, held_out: Batch) -> Solved:
    """Train the plain recipe, from the preset's seed, until it passes, or for ``PLAIN_MOST`` steps."""
    seconds, exact, steps = 0.0, 0.0, 0
    before = time.process_time()
    for steps, model in enumerate(_plain_updates(preset), start=1):
        if steps % PLAIN_EVERY == 0:
            seconds += time.process_time() - before
            exact = _exact_match(model, held_out)
            before = time.process_time()
        if exact >= TARGET or steps == PLAIN_MOST:
            break
    return Solved(preset.training.seed, steps, seconds, exact)


def _plain_updates(preset: Preset) -> Iterator[PlainTransformer]:
    """Yield the model after each update, for ever."""
    task, seed = build_task(preset.task), preset.training.seed
    torch.manual_seed(seed)
    model = rival_of(preset)
    optimizer = torch.optim.Adam(model.parameters(), lr=PLAIN_RATE)
    generator = torch.Generator().manual_seed(seed)
    while True:
        batch = task.sample(PLAIN_BATCH, split="train", generator=generator)
        optimizer.zero_grad()
        sequence_loss(model(batch.src, batch.tgt_in), batch.tgt_out).backward()
        optimizer.step()
        yield model


def _exact_match(model: PlainTransformer, pairs: Batch) -> float:
    """Return the share of sequences written exactly; where that is below the target, what it is at most."""
    wrong, allowed = 0, round((1 - TARGET) * len(pairs))
    model.eval()
    for start in range(0, len(pairs), CHUNK):
        part = pairs[start : start + CHUNK]
        written = model.greedy(part.src, max_steps=part.tgt_out.shape[1])
        wrong += int((~is_exact(written, part.tgt_out)).sum())
        if wrong > allowed:  # it cannot pass any more, and the rest takes long
            break
    model.train()
    return 1 - wrong / len(pairs)


def _shorter(preset: Preset) -> Preset:
    few = {"training.steps": _WARM_UP_STEPS, "training.warmup_steps": 0, "training.validation_sequences": 1}
    return preset.with_changes(few)


def _print_head(preset: Preset, has_rival: bool) -> None:
    parameters = count_parameters(new_state(preset).model)
    print(f"{preset.name}, {parameters:,} parameters, on the CPU, 1 thread; seconds of processor time")
    print(f"held-out exact match of {HELD_OUT:,}, free-running; solved from {TARGET:.1%} on")
    plain = f"   plain recipe, batches of {PLAIN_BATCH}" if has_rival else ""
    print(f"{'seed':>6}   {f'this preset, batches of {preset.training.sequences_per_step}':32}{plain}")


def _print_row(ours: Solved, plain: Solved | None) -> None:
    ratio = f"   {plain.seconds / ours.seconds:.1f} ×" if plain else ""
    print(f"{ours.seed:>6}   {_in_words(ours):32}{_in_words(plain) if plain else '':35}{ratio}", flush=True)


def _in_words(run: Solved) -> str:
    return f"{run.steps:,} steps {run.seconds:6.1f} s {run.exact_match:.2%}{'' if run.is_solved else ' not solved'}"


def _print_summary(ours: list[Solved], plain: list[Solved]) -> None:
    seconds = [run.seconds for run in ours]
    print(f"solved {sum(run.is_solved for run in ours)} of {len(ours)}; ", end="")
    print(f"median {median(seconds):.1f} s, worst {max(seconds):.1f} s")
    if plain:
        ratios = [other.seconds / own.seconds for own, other in zip(ours, plain, strict=True)]
        print(f"plain recipe ÷ this preset: median {median(ratios):.1f} ×, worst {min(ratios):.1f} ×")
