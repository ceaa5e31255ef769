"""The figures README claims for inputs longer than those trained on; ``-s`` prints them. A quarter of an hour."""

from statistics import fmean, median

import pytest
import torch

from core.config import load_preset
from core.evaluation.by_length import length_curve
from core.teaching.bugs import new_state
from core.training.loop import train

LONGER, LONGEST = range(41, 101), range(41, 501)
pytestmark = pytest.mark.slow


def figures_of(seed: int) -> dict[str, float]:
    """Train reverse-long to its end; its figures at lengths a little above those trained on, and far above."""
    torch.set_num_threads(1)
    state = new_state(load_preset("reverse-long").with_changes({"training.seed": seed}))
    for _ in train(state):
        pass
    state.model.eval()
    near = length_curve(state.model, state.task, lengths=LONGER).points
    far = length_curve(state.model, state.task, lengths=LONGEST, per_length=5).points
    figures = {name: fmean(point.token_accuracy for point in points) for name, points in (("near", near), ("far", far))}
    at_60 = near[LONGER.index(60)].exact_match
    exact = fmean(point.exact_match for point in near)
    print(
        f"\nseed {seed}: {state.seconds:.0f} s; tokens right at 41–100 {figures['near']:.2%}, "
        f"at 41–500 {figures['far']:.2%}; exact match at 41–100 {exact:.2%}, at 60 {at_60:.0%}, "
        f"at 100 {near[-1].exact_match:.0%}",
        end="",
    )
    return figures | {"at 60": at_60}


def test_reversal_holds_for_inputs_two_and_a_half_times_as_long_as_those_trained_on():
    runs = [figures_of(seed) for seed in range(3)]
    medians = {name: median(run[name] for run in runs) for name in runs[0]}
    print(f"\nmedians: {medians}")
    assert medians["near"] >= 0.95
    assert medians["at 60"] > 0.5
