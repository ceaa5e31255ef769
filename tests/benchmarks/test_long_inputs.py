"""Length generalization as the documentation reports it; ``-s`` prints the results. Takes half an hour."""

import time
from statistics import median

import pytest
import torch

from core.config import load_preset
from core.evaluation.by_length import accuracy_by_length
from core.teaching.bugs import new_state
from core.training.loop import train

FAR = range(41, 501, 9)  # 41, 50, ..., 500
SEEDS = range(5)  # with these the settings were chosen
pytestmark = pytest.mark.slow


def train_and_measure(seed: int) -> dict[str, float]:
    """Train reverse-long; return its accuracy up to 12.5 times the longest training length of 40."""
    torch.set_num_threads(1)
    state = new_state(load_preset("reverse-long").with_changes({"training.seed": seed}))
    started = time.process_time()
    for _ in train(state):
        pass
    seconds = time.process_time() - started
    state.model.eval()
    far = accuracy_by_length(state.model, state.task, lengths=FAR, per_length=20).mean(FAR)
    single = {n: accuracy_by_length(state.model, state.task, lengths=range(n, n + 1)) for n in (100, 200, 350, 500)}
    exact = {f"exact at {n}": measured.points[0].exact_match for n, measured in single.items()}
    results = {"seconds": seconds, "tokens": far.token_accuracy, "exact": far.exact_match, **exact}
    print(f"\nseed {seed}: " + ", ".join(f"{name} {value:.4g}" for name, value in results.items()), end="", flush=True)
    return results


def test_reversal_generalizes_to_inputs_twelve_times_as_long():
    runs = [train_and_measure(seed) for seed in SEEDS]
    medians = {name: median(run[name] for run in runs) for name in runs[0]}
    print(f"\nmedians: {medians}")
    assert medians["tokens"] >= 0.95
    assert medians["exact at 200"] > 0.5
