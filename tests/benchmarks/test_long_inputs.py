"""Length generalization as the documentation reports it; ``-s`` prints the results. Takes a quarter of an hour."""

from statistics import median

import pytest
import torch

from core.config import load_preset
from core.evaluation.by_length import accuracy_by_length
from core.teaching.bugs import new_state
from core.training.loop import train

LONGER, LONGEST = range(41, 101), range(41, 501)
pytestmark = pytest.mark.slow


def train_and_measure(seed: int) -> dict[str, float]:
    """Train reverse-long; return token accuracy up to 2.5 and up to 12.5 times the longest training length of 40."""
    torch.set_num_threads(1)
    state = new_state(load_preset("reverse-long").with_changes({"training.seed": seed}))
    for _ in train(state):
        pass
    state.model.eval()
    longer = accuracy_by_length(state.model, state.task, lengths=LONGER)
    longest = accuracy_by_length(state.model, state.task, lengths=LONGEST, per_length=5)
    near, far = longer.mean(LONGER), longest.mean(LONGEST)
    at_60, at_100 = (longer.mean(range(length, length + 1)).exact_match for length in (60, 100))
    print(
        f"\nseed {seed}: {state.seconds:.0f} s; {near}; {far}; exact match at 60 {at_60:.0%}, at 100 {at_100:.0%}",
        end="",
    )
    return {"near": near.token_accuracy, "far": far.token_accuracy, "at 60": at_60}


def test_reversal_generalizes_to_inputs_two_and_a_half_times_as_long():
    runs = [train_and_measure(seed) for seed in range(3)]
    medians = {name: median(run[name] for run in runs) for name in runs[0]}
    print(f"\nmedians: {medians}")
    assert medians["near"] >= 0.95
    assert medians["at 60"] > 0.5
