"""Length generalization as the documentation reports it; ``-s`` prints the results. Takes forty minutes."""

import time
from statistics import median

import pytest
import torch

from core.config import Preset, load_preset
from core.evaluation.by_length import accuracy_by_length
from core.teaching.bugs import new_state
from core.training.loop import train

FAR = range(41, 501, 9)  # 41, 50, ..., 500: up to 12.5 times the longest training length of 40
pytestmark = pytest.mark.slow


def medians_of_trainings(preset: Preset, *, seeds: range, lengths: tuple[int, ...]) -> dict[str, float]:
    """Train with every seed, print the results of each and return their medians.

    Args:
        lengths: those to measure exact match at, in order; if the last is one of ``FAR``, also the means over that.
    """
    runs = [train_and_measure(preset.with_changes({"training.seed": seed}), lengths) for seed in seeds]
    medians = {name: median(run[name] for run in runs) for name in runs[0]}
    print(f"\nmedians: {medians}")
    return medians


def train_and_measure(preset: Preset, lengths: tuple[int, ...]) -> dict[str, float]:
    torch.set_num_threads(1)
    state = new_state(preset)
    started = time.process_time()
    for _ in train(state):
        pass
    results = {"seconds": time.process_time() - started}
    state.model.eval()
    if lengths[-1] in FAR:
        far = accuracy_by_length(state.model, state.task, lengths=FAR, per_length=20).mean(FAR)
        results |= {"tokens": far.token_accuracy, "exact": far.exact_match}
    for length in lengths:
        [point] = accuracy_by_length(state.model, state.task, lengths=range(length, length + 1)).points
        results[f"exact at {length}"] = point.exact_match
    shown = ", ".join(f"{name} {value:.4g}" for name, value in results.items())
    print(f"\n{preset.name}, seed {preset.training.seed}: {shown}", end="", flush=True)
    return results


def test_reversal_generalizes_to_inputs_twelve_times_as_long():
    """Seeds 10 to 14 were not used to choose settings."""
    medians = medians_of_trainings(load_preset("reverse-long"), seeds=range(10, 15), lengths=(100, 200, 350, 500))
    assert medians["tokens"] >= 0.99
    assert medians["exact"] >= 0.5


def test_copying_generalizes_to_inputs_five_times_as_long():
    """Without the curriculum, as the documentation reports it."""
    preset = load_preset("reverse-long").with_changes({"task.transform": "copy", "training.curriculum_steps": 0})
    medians = medians_of_trainings(preset, seeds=range(3), lengths=(100, 200, 350, 500))
    assert medians["tokens"] >= 0.99
    assert medians["exact at 200"] >= 0.5


def test_addition_generalizes_to_three_more_digits():
    """Seed 0 was also used to choose the settings."""
    medians = medians_of_trainings(load_preset("addition-long"), seeds=range(3), lengths=(7, 8, 9, 10, 12, 14))
    assert medians["exact at 10"] >= 0.8
