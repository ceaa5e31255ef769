"""``gradients``: statistics of a run's gradients for each parameter, and how they vary from batch to batch and step."""

import argparse
import json
from collections.abc import Iterator

from core.config.counting import percent
from core.interpret.trained import Trained
from core.runs import DEFAULT_ROOT
from core.runs.run import Run, Runs
from core.runs.text_tables import aligned
from core.runs.training_state import training_state_of
from core.storage.errors import InputError
from core.teaching.doctor.health_checks import EXPLODING, VANISHING
from core.training.batch_gradients import BatchGradients, measure_gradients

MAX_UPDATES = 1_000
HOW_TO_READ = """\
Gradients of the training loss with dropout, before clipping, at weights that stay as they are.
norm: L2, mean over the batches, with its standard deviation; cosine: of the gradients of successive batches, 1 the same
direction, 0 unrelated; mean, std, min, max: of the elements; zeros: elements that are exactly 0
A constant added to all keys changes no softmax, so a bias of keys has no gradient except rounding."""

Course = list[tuple[int, list[BatchGradients]]]  # step, and a figure for each parameter


def run(options: argparse.Namespace) -> int:
    """Print one line per parameter at the best weights, and its norm at the earlier steps whose weights were kept."""
    if not 1 <= options.updates <= MAX_UPDATES:
        raise InputError(f"--updates={options.updates} must be from 1 to {MAX_UPDATES}")
    chosen = Runs(options.checkpoints or DEFAULT_ROOT, pairs=options.pairs)[options.run]
    best = chosen.trained()
    measured = measure_gradients(training_state_of(best), options.updates)
    course = _course(chosen, best, options.updates)
    print(f"run {best.run} ({best.preset.name}), best weights, from step {best.step}")
    print(f"gradients by parameter on the batches of {options.updates} updates\n")
    print(_lines(measured, course))
    print()
    for line in _observations(measured):
        print(line)
    print(f"\n{HOW_TO_READ}")
    if options.json:
        result = {"run": best.run, "preset": best.preset.name, "step": best.step, "updates": options.updates}
        result["parameters"] = [each.as_data() for each in measured]
        result["course"] = {step: {each.mean.parameter: each.mean.norm for each in at} for step, at in course}
        print(json.dumps(result))
    return 0


def _course(chosen: Run, best: Trained, updates: int) -> Course:
    """Measure the gradients at the steps whose weights the run has kept, but not at the best ones again."""
    steps = (step for step in chosen.weights_by_step.steps if step != best.step)
    return [(step, measure_gradients(training_state_of(chosen.trained(step)), updates)) for step in steps]


def _lines(measured: list[BatchGradients], course: Course) -> str:
    """Format the table with aligned columns; the norms at earlier steps are the last ones."""
    headings = ["parameter", "norm", "±", "cosine", "mean", "std", "min", "max", "zeros"]
    rows = [[*headings, *(f"norm at {step:,}" for step, _ in course)]]
    for at, each in enumerate(measured):
        of = each.mean
        elements = [_figure(value) for value in (of.mean, of.std, of.min, of.max)]
        cosine = "–" if each.cosine is None else f"{each.cosine:.2f}"
        zeros = "–" if of.zeros is None else percent(of.zeros)
        norms = [_figure(figures[at].mean.norm) for _, figures in course]
        rows.append([of.parameter, _figure(of.norm), _figure(each.norm_std), cosine, *elements, zeros, *norms])
    return aligned(rows, left=1)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _observations(measured: list[BatchGradients]) -> Iterator[str]:
    """Report parameters without a gradient, and norms outside of the doctor's limits."""
    figures = [(each.mean.parameter, each.mean.norm, each.mean.zeros) for each in measured if not _is_key_bias(each)]
    kinds = {
        "without a gradient": [name for name, norm, _ in figures if norm is None],
        "with a gradient of zeros only": [name for name, _, zeros in figures if zeros == 1],
        f"with a norm below {VANISHING:g}": [name for name, norm, _ in figures if norm and norm < VANISHING],
        f"with a norm above {EXPLODING:g}": [name for name, norm, _ in figures if norm and norm > EXPLODING],
    }
    for kind, names in kinds.items():
        first = f", the first is {names[0]}" if names else ""
        yield f"parameters {kind}: {len(names)} of {len(figures)}{first}"


def _is_key_bias(each: BatchGradients) -> bool:
    return each.mean.projection == "K" and "bias" in each.mean.parameter
