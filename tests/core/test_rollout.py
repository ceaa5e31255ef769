"""Rollout of stacks with known answers."""

import pytest
import torch
from torch.testing import assert_close

from core.analysis import rollout

SIZE = 5


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_layers_that_look_at_themselves_pass_everything_on_as_it_was(layers):
    weights = torch.eye(SIZE).expand(layers, 2, 3, SIZE, SIZE)
    assert_close(rollout(weights), torch.eye(SIZE).expand(layers, 2, SIZE, SIZE))


def test_uniform_layers_halve_what_a_token_keeps_of_itself():
    weights = torch.full((3, 1, 2, SIZE, SIZE), 1 / SIZE)
    for layer, passed in enumerate(rollout(weights)[:, 0], start=1):
        kept = 0.5**layer
        assert_close(passed, kept * torch.eye(SIZE) + (1 - kept) / SIZE)


def test_layers_are_multiplied_upper_by_lower():
    """The first layer looks one to the left, the second at the first token: their order matters."""
    left = torch.eye(3).roll(1, dims=0)  # row i looks at i - 1
    first = torch.tensor([[1.0, 0, 0]] * 3)
    passed = rollout(torch.stack([left, first])[:, None, None])
    half = torch.eye(3) / 2
    assert_close(passed[1, 0], (first / 2 + half) @ (left / 2 + half))


def test_heads_count_alike_and_rows_sum_to_one():
    weights = torch.rand(4, 2, 3, SIZE, SIZE).softmax(dim=-1)
    passed = rollout(weights)
    assert_close(passed.sum(dim=-1), torch.ones(4, 2, SIZE))
    assert_close(passed[0], rollout(weights[:1].mean(dim=2, keepdim=True))[0])
