"""Each measure of attention on rows with known answers."""

import math

import pytest
import torch
from torch.testing import assert_close

from core.interpret.measures import (
    aer_row_weights,
    argmax_accuracy,
    argmax_weights,
    attention_mass,
    head_distances,
    normalized_entropy,
    offset_counts,
    uniform_mass,
)


def maps(*heads: list[list[float]]) -> torch.Tensor:
    """One layer of heads, (1, H, N, K)."""
    return torch.tensor(heads)[None]


def marked(*rows: str) -> torch.Tensor:
    """Cells, (N, K): ``"..x"`` marks the last of three."""
    return torch.tensor([[sign == "x" for sign in row] for row in rows])


ALL = marked("xxxx")


def test_attention_mass_sums_the_weights_of_marked_keys():
    weights = maps([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]], [[1, 0, 0, 0], [0, 1, 0, 0]])
    found = attention_mass(weights, marked(".x.x", "...."))
    assert_close(found, torch.tensor([[[0.6, 0.0], [0.0, 0.0]]]))


def test_fewer_cells_than_keys_mark_the_first_keys():
    assert attention_mass(maps([[0.1, 0.2, 0.3, 0.4]]), marked(".x")).item() == pytest.approx(0.2)


def test_uniform_attention_scores_the_uniform_mass():
    seen, cells = marked("xxxx", "xxxx", "xx.."), marked(".x..", ".xx.", ".x..")
    uniform = uniform_mass(seen, cells)
    assert uniform.tolist() == [0.25, 0.5, 0.5]
    spread = seen / seen.sum(dim=1, keepdim=True)
    assert_close(attention_mass(spread[None, None], cells)[0, 0], uniform)
    assert_close(argmax_accuracy(spread[None, None], seen, cells)[0, 0], uniform)


@pytest.mark.parametrize(
    ("weights", "seen", "expected"),
    [
        ([0.1, 0.2, 0.6, 0.1], "xxxx", [0, 0, 1, 0]),
        ([0.4, 0.1, 0.4, 0.1], "xxxx", [0.5, 0, 0.5, 0]),
        ([0.25, 0.25, 0.25, 0.25], "xxxx", [0.25] * 4),
        ([0.5, 0.5, 0, 0], "xx..", [0.5, 0.5, 0, 0]),
        ([0, 0, 0, 0], "xx..", [0.5, 0.5, 0, 0]),  # all zero: the visible keys tie
        ([0.1, 0.2, 0.1, 0.6], "xxx.", [0, 0, 0, 0]),  # a leak is no argmax
    ],
)
def test_tied_keys_share_the_argmax(weights, seen, expected):
    assert_close(argmax_weights(maps([weights]), marked(seen))[0, 0, 0], torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize(
    ("weights", "cells", "expected"),
    [
        ([0.1, 0.7, 0.1, 0.1], ".x..", 1),
        ([0.1, 0.7, 0.1, 0.1], "..x.", 0),
        ([0.1, 0.7, 0.1, 0.1], ".xx.", 1),  # any of those it may come from
        ([0.1, 0.4, 0.4, 0.1], ".x..", 0.5),
        ([0.1, 0.4, 0.4, 0.1], ".xx.", 1),
        ([0.25, 0.25, 0.25, 0.25], ".xx.", 0.5),
        ([0.1, 0.2, 0.1, 0.6], ".x.", 1),  # the last key is not of the source
    ],
)
def test_argmax_accuracy_counts_marked_argmaxes(weights, cells, expected):
    assert argmax_accuracy(maps([weights]), ALL, marked(cells)).item() == pytest.approx(expected)


def error_rate(found: list[float], cells: torch.Tensor) -> float:
    counts = aer_row_weights(cells)
    return ((1 - torch.tensor(found)) * counts).sum().item() / counts.sum().item()


@pytest.mark.parametrize("found", [[1, 1, 1, 0], [0, 0, 0, 0], [1, 0.5, 1, 1]])
def test_the_error_rate_is_the_fraction_of_errors_with_one_link_per_row(found):
    cells = marked("x..", ".x.", "..x", "x..")
    assert error_rate(found, cells) == pytest.approx(1 - sum(found) / 4)


@pytest.mark.parametrize("found", [[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
def test_the_error_rate_is_that_of_och_and_ney(found):
    """Two sure links and a row with two possible ones; a row without a link does not count."""
    cells = marked("x..", ".x.", "xx.", "...")
    sure_found, possible_found, links_found, sure = sum(found[:2]), sum(found), 3, 2
    expected = 1 - (sure_found + possible_found) / (links_found + sure)
    assert error_rate([*found, 0], cells) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("weights", "seen", "expected"),
    [
        ([0.25, 0.25, 0.25, 0.25], "xxxx", 1),
        ([0.5, 0.5, 0, 0], "xx..", 1),  # a causal row, spread over all there is
        ([0.5, 0.5, 0, 0], "xxxx", 0.5),
        ([0, 1, 0, 0], "xxxx", 0),
        ([0.75, 0.25, 0, 0], "xx..", -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))),
        ([0.3, 0.3, 0.4, 0], "xx..", 1),  # what falls on a key that is not there is left out
        ([0, 0, 0, 0], "xxxx", 0),
    ],
)
def test_entropy_is_normalized_by_the_visible_keys(weights, seen, expected):
    assert normalized_entropy(maps([weights]), marked(seen)).item() == pytest.approx(expected, abs=1e-6)


def test_offsets_are_counted_by_head_with_shared_ties():
    offsets = torch.tensor([[-1, 0, 1, 2], [-2, -1, 0, 1]])
    previous = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]]
    torn = [[0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]
    counts = offset_counts(maps(previous, torn), ALL.expand(2, 4), offsets, span=3)
    assert_close(counts[0, 0], torch.tensor([0, 0, 2, 0, 0, 0, 0]).float())  # both at -1
    assert_close(counts[0, 1], torch.tensor([0, 0, 0, 1, 1, 0, 0]).float())


def test_distance_is_0_between_equal_and_1_between_disjoint_heads():
    half, other = [[0.5, 0.5, 0, 0]] * 3, [[0, 0, 0.5, 0.5]] * 3
    between = head_distances(maps(half, half, other))[0] / 3
    assert_close(between, torch.tensor([[0.0, 0, 1], [0, 0, 1], [1, 1, 0]]))


def test_distance_of_a_sharp_and_a_split_head():
    """The divergence is H(3/4, 1/4) − (0 + 1) / 2 bits."""
    divergence = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)) - 0.5
    between = head_distances(maps([[1.0, 0]], [[0.5, 0.5]]))
    assert between[0, 0, 1].item() == pytest.approx(math.sqrt(divergence), abs=1e-6)


def test_distance_is_a_metric():
    heads = torch.rand(3, 4, 50, 6).softmax(dim=-1)
    between = head_distances(heads)
    assert_close(between, between.transpose(1, 2))
    assert (between >= 0).all()
    assert (between <= 50).all()
    for first, second, third in ((0, 1, 2), (1, 2, 3), (0, 3, 1)):
        assert (between[:, first, third] <= between[:, first, second] + between[:, second, third] + 1e-4).all()
