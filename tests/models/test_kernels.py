"""Every fast kernel equals the plain line in its docstring."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from core.models import kernels
from core.models.attention import masked_softmax

CLOSE = {"atol": 1e-6, "rtol": 1e-5}
KEYS = (1, 3, kernels.SHORT_ROW - 1, kernels.SHORT_ROW, 40)


def test_softmax_equals_the_plain_line_for_short_and_long_rows():
    for keys in KEYS:
        scores = torch.randn(2, 3, 4, keys) * 5
        assert_close(kernels.softmax(scores), scores.softmax(dim=-1), **CLOSE)


def test_weights_of_a_single_query_are_multiplied_in_one_call():
    weights = kernels.softmax(torch.randn(20, 4, 1, kernels.SHORT_ROW - 1))
    with torch.profiler.profile() as profile:
        weights @ torch.randn(20, 4, kernels.SHORT_ROW - 1, 64)
    assert {event.name for event in profile.events()} >= {"aten::bmm"}
    assert not [event for event in profile.events() if event.name == "aten::select"]  # of one matrix


def test_matmul_shared_equals_repeating_the_matrices():
    for beams in (1, 4):
        rows, shared = torch.randn(3 * beams, 2, 5, 8), torch.randn(3, 2, 8, 6)
        assert_close(kernels.matmul_shared(rows, shared), rows @ shared.repeat_interleave(beams, dim=0), **CLOSE)


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_fused_attention_equals_the_plain_line(with_mask, with_bias):
    for keys in KEYS:
        query, key, value = torch.randn(3, 2, 5, 8), torch.randn(3, 2, keys, 8), torch.randn(3, 2, keys, 8)
        lengths = torch.tensor([keys, 1, max(1, keys - 1)])
        mask = (torch.arange(keys) < lengths[:, None])[:, None, None] if with_mask else None
        bias = torch.randn(3, 2, 5, keys) if with_bias else None
        scores = query @ key.mT / math.sqrt(8)
        expected = masked_softmax(scores if bias is None else scores + bias, mask) @ value
        assert_close(kernels.fused_attention(query, key, value, mask, bias), expected, **CLOSE)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_packed_linear_equals_the_plain_line_for_small_and_large_weights(activation):
    plain = {"none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
    for outputs in (12, 4000):
        weight, bias = torch.randn(outputs, 128), torch.randn(outputs)
        linear = kernels.PackedLinear(weight, bias, activation)
        for rows in (1, 7, 64, 300):
            x = torch.randn(rows, 128)
            expected = plain(torch.nn.functional.linear(x, weight, bias))
            assert_close(linear(x), expected, atol=1e-4, rtol=1e-5)
            without_activation = torch.nn.functional.linear(x, weight, bias)
            assert_close(linear.columns(x), without_activation.t(), atol=1e-4, rtol=1e-5)


def test_argmax_equals_the_plain_line_also_of_ties_and_what_is_not_finite():
    x = torch.randint(0, 5, (50, 37)).float()
    x[1, 4], x[2, 7], x[3] = torch.inf, torch.nan, -torch.inf
    for each in (x, x.bfloat16(), x.clone().requires_grad_(), x.t().contiguous().t()):
        assert torch.equal(kernels.argmax(each), each.argmax(dim=-1))


def test_selected_columns_equal_the_plain_line():
    index = torch.tensor([3, 0, 0, 5])
    for shape in ((2, 3, 6), (4, 6), (1, 1, 6), (0, 3, 6)):
        x = torch.randn(shape)
        assert torch.equal(kernels.select_columns(x, index), x.index_select(-1, index))


@pytest.mark.parametrize("with_hidden", [False, True])
def test_attention_to_columns_and_slots_equals_the_plain_line(with_hidden):
    for keys, rows in itertools.product(KEYS, (3, 64)):
        query, (key, value) = torch.randn(rows, 2, 4, 8), torch.randn(2, rows, 2, keys, 8)
        hidden = torch.zeros(rows, 1, 1, keys)
        hidden[1, ..., 1:] = -torch.inf
        expected = (query @ key.mT + (hidden if with_hidden else 0)).softmax(dim=-1) @ value
        slots = kernels.attend_slots(query, key.flatten(0, 1), value.flatten(0, 1), hidden if with_hidden else None)
        assert_close(slots, expected, **CLOSE)
        columns = kernels.attend_columns(
            query[:, :, 0].permute(1, 2, 0),
            key.permute(2, 1, 3, 0),
            value.permute(2, 1, 3, 0),
            hidden[:, 0, 0].t()[:, None] if with_hidden else None,
        )
        assert_close(columns, expected[:, :, 0].permute(1, 2, 0), **CLOSE)


def test_keep_mask_is_drawn_like_the_plain_line():
    for p in (0.1, 0.5):
        keep = kernels.keep_mask(torch.empty(200, 100), p, torch.Generator().manual_seed(0))
        plain = torch.empty(200, 100).bernoulli_(1 - p, generator=torch.Generator().manual_seed(0))
        assert keep.shape == plain.shape
        assert keep.float().mean().item() == pytest.approx(plain.mean().item(), abs=0.015)


def test_top_k_equals_the_stable_sort_with_and_without_ties():
    infinite = torch.full((3, 200), -torch.inf)
    for scores in (
        torch.randn(3, 200),
        torch.randint(5, (3, 200)).float(),
        infinite,
        infinite.scatter(1, torch.tensor([[7], [3], [9]]), 1.0),
    ):
        for k in (1, 10, 200):
            plain = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
            is_finite = scores.gather(1, plain).isfinite()
            top = kernels.top_k(scores, k)
            assert torch.equal(top[is_finite], plain[is_finite])
            assert torch.equal(scores.gather(1, top), scores.gather(1, plain))


def test_growing_rows_equal_concatenation_and_keep_what_was_returned_before():
    parts = [torch.randn(3, 2, length, 4) for length in (1, 1, 30, 2, 100)]
    growing = kernels.GrowingRows(parts[0])
    for end in range(2, len(parts) + 1):
        before, expected = growing.rows, torch.cat(parts[: end - 1], dim=2)
        assert torch.equal(growing.append(parts[end - 1]), torch.cat(parts[:end], dim=2))
        assert torch.equal(before, expected)
    index = torch.tensor([2, 0, 0, 1])
    assert torch.equal(kernels.GrowingRows(growing.rows, index).rows, torch.cat(parts, dim=2)[index])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drop_equals_the_plain_line_bit_for_bit_and_saves_a_byte_an_element(dtype):
    p, keep = 0.1, torch.rand(200, 100) > 0.1
    x, gradient = torch.randn(200, 100).to(dtype), torch.randn(200, 100).to(dtype)
    x[:50] = -0.0
    outputs, saved = [], []
    for function in (lambda x: x * keep.to(x.dtype).div_(1 - p), lambda x: kernels.drop(x, keep, p)):
        leaf = x.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda each: each):
            y = function(leaf)
        y.backward(gradient)
        outputs.append([each.detach().view(torch.uint8) for each in (y, leaf.grad)])  # negative zeros too
    assert all(torch.equal(*pair) for pair in zip(*outputs, strict=True))
    assert saved[-1].dtype == torch.bool
    assert saved[-1].numel() == x.numel()
