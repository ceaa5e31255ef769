"""Attention equals PyTorch's, fused and explicit, and respects its masks."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from core.models.attention import MultiHeadAttention, masked_softmax
from core.models.hooks import hooks, name_hook_points
from core.models.positions import NO_POSITIONS, RelativePositions
from core.models.transformer import causal_mask

B, TQ, TK, D, H = 3, 5, 7, 16, 4


def reference_of(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """PyTorch's attention with our weights copied into it."""
    reference = nn.MultiheadAttention(D, H, batch_first=True)
    projections = (ours.w_q, ours.w_k, ours.w_v)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([linear.weight for linear in projections]))
        reference.in_proj_bias.copy_(torch.cat([linear.bias for linear in projections]))
        reference.out_proj.weight.copy_(ours.w_o.weight)
        reference.out_proj.bias.copy_(ours.w_o.bias)
    return reference


def attend(ours: MultiHeadAttention, *inputs, need_weights: bool = False, bias: torch.Tensor | None = None):
    """The output (B, Tq, D) and, if needed, the weights (B, H, Tq, Tk) that a hook reads."""
    name_hook_points(ours)
    patterns: list[torch.Tensor] = []
    positions = NO_POSITIONS if bias is None else RelativePositions(bias=bias)
    x, states, mask = inputs
    with hooks({"hook_pattern": patterns.append} if need_weights else {}):
        output = ours(x, ours.keys_values(states), mask, positions)
    return output, patterns[0] if need_weights else None


def weights_of(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """softmax(Q Kᵀ / √d_k) of queries and keys (B, H, T, K)."""
    return masked_softmax(query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]), mask)


def padding(lengths: list[int], width: int) -> torch.Tensor:
    """(B, width) bool, True = a real token."""
    return torch.arange(width) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", ["nothing", "padding", "future"])
def test_output_weights_and_gradients_equal_pytorchs_with_copied_weights(masked, need_weights):
    ours = MultiHeadAttention(D, H)
    reference = reference_of(ours)
    x = torch.randn(B, TQ, D, requires_grad=True)
    seen = torch.randn(B, TK if masked != "future" else TQ, D, requires_grad=True)
    real = padding([TK, 4, 1], TK)
    ours_mask, theirs = {
        "nothing": (None, {}),
        # Theirs means the opposite: True = may not attend.
        "padding": (real[:, None, None, :], {"key_padding_mask": ~real}),
        "future": (causal_mask(TQ), {"attn_mask": ~torch.ones(TQ, TQ, dtype=torch.bool).tril()}),
    }[masked]
    upstream = torch.randn(B, TQ, D)

    output, weights = attend(ours, x, seen, ours_mask, need_weights=need_weights)
    inputs = torch.autograd.grad(output, [x, seen], upstream, retain_graph=True)
    output.backward(upstream)
    expected, expected_weights = reference(x, seen, seen, average_attn_weights=False, **theirs)
    expected_inputs = torch.autograd.grad(expected, [x, seen], upstream, retain_graph=True)
    expected.backward(upstream)

    close = {"atol": 1e-5, "rtol": 1e-5}
    assert_close(output, expected, **close)
    if need_weights:
        assert_close(weights, expected_weights, **close)
    else:
        assert weights is None
    assert_close(inputs, expected_inputs, **close)
    projections = (ours.w_q, ours.w_k, ours.w_v)
    assert_close(torch.cat([linear.weight.grad for linear in projections]), reference.in_proj_weight.grad, **close)
    assert_close(torch.cat([linear.bias.grad for linear in projections]), reference.in_proj_bias.grad, **close)
    assert_close(ours.w_o.weight.grad, reference.out_proj.weight.grad, **close)
    assert_close(ours.w_o.bias.grad, reference.out_proj.bias.grad, **close)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("mask", [None, padding([TK, 4, 1], TK)[:, None, None, :]])
def test_explicit_weights_and_the_fused_kernel_give_the_same_output(mask, biased):
    ours = MultiHeadAttention(D, H).eval()
    x, seen = torch.randn(B, TQ, D), torch.randn(B, TK, D)
    bias = torch.randn(B, H, TQ, TK) if biased else None
    explicit, _ = attend(ours, x, seen, mask, bias=bias, need_weights=True)
    fused, _ = attend(ours, x, seen, mask, bias=bias)
    assert_close(explicit, fused, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", ["nothing", "padding", "future"])
def test_scores_of_log_length_grow_with_the_logarithm_of_the_keys(masked, need_weights):
    ours = MultiHeadAttention(D, H, scale="log-length").eval()
    x, seen = torch.randn(B, TQ, D), torch.randn(B, TQ if masked == "future" else TK, D)
    mask, counts = {
        "nothing": (None, [[TK] * TQ] * B),
        "padding": (padding([TK, 4, 1], TK)[:, None, None, :], [[TK] * TQ, [4] * TQ, [1] * TQ]),
        "future": (causal_mask(TQ), [[1, 2, 3, 4, 5]] * B),
    }[masked]
    output, _ = attend(ours, x, seen, mask, need_weights=need_weights)
    for row in range(B):
        for position, count in enumerate(counts[row]):
            query = ours.w_q(x[row, position]) * math.log(count) / math.log(20)
            heads = []
            for head in range(H):
                own, visible = slice(head * D // H, (head + 1) * D // H), slice(count)
                scores = query[own] @ ours.w_k(seen[row])[visible, own].T / math.sqrt(D // H)
                heads.append(scores.softmax(-1) @ ours.w_v(seen[row])[visible, own])
            assert_close(output[row, position], ours.w_o(torch.cat(heads)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_scores_are_divided_by_the_temperature_but_biases_are_not(temperature, need_weights):
    ours = MultiHeadAttention(D, H).eval()
    ours.temperature = temperature
    x, seen, bias = torch.randn(B, TQ, D), torch.randn(B, TK, D), torch.randn(B, H, TQ, TK)
    mask = padding([TK, 4, 1], TK)[:, None, None, :]
    output, _ = attend(ours, x, seen, mask, bias=bias, need_weights=need_weights)
    query, key, value = (
        linear(each).unflatten(-1, (H, -1)).transpose(1, 2)
        for linear, each in ((ours.w_q, x), (ours.w_k, seen), (ours.w_v, seen))
    )
    scores = query @ key.mT / (math.sqrt(D // H) * temperature) + bias
    z = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value
    assert_close(output, ours.w_o(z.transpose(1, 2).flatten(2)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("keys", [1, 15, 16, 40])  # short rows are computed in another way than long ones
def test_masked_softmax_equals_pytorchs_for_short_and_long_rows(keys):
    scores, mask = torch.randn(B, H, TQ, keys) * 5, padding([keys, 1, max(1, keys - 1)], keys)[:, None, None, :]
    expected = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    assert_close(masked_softmax(scores, mask), expected, atol=1e-6, rtol=1e-5)
    assert_close(masked_softmax(scores, None), scores.softmax(dim=-1), atol=1e-6, rtol=1e-5)


def test_rows_sum_to_one_and_masked_weights_are_exactly_zero():
    real = padding([TK, 4, 1], TK)[:, None, None, :]
    weights = weights_of(torch.randn(B, H, TQ, 4) * 5, torch.randn(B, H, TK, 4) * 5, real)
    assert_close(weights.sum(-1), torch.ones(B, H, TQ), atol=1e-6, rtol=0)
    assert (weights.masked_select(~real.expand_as(weights)) == 0).all()
    assert (weights >= 0).all()


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_row_with_nothing_to_attend_to_gives_zeros_and_finite_gradients(need_weights, biased):
    ours = MultiHeadAttention(D, H)
    x = torch.randn(B, TQ, D, requires_grad=True)
    seen = torch.randn(B, TK, D, requires_grad=True)
    mask = padding([TK, 0, 2], TK)[:, None, None, :]
    bias = torch.randn(B, H, TQ, TK) if biased else None
    output, weights = attend(ours, x, seen, mask, bias=bias, need_weights=need_weights)
    # Zeros from every head leave the output projection with nothing but its bias.
    assert_close(output[1], ours.w_o.bias.expand(TQ, D), atol=0, rtol=0)
    if need_weights:
        assert (weights[1] == 0).all()
    output.square().sum().backward()
    for tensor in (x, seen, *ours.parameters()):
        assert tensor.grad.isfinite().all()
    assert (seen.grad[1] == 0).all()


def test_batched_heads_equal_one_head_at_a_time():
    ours = MultiHeadAttention(D, H)
    x, seen = torch.randn(B, TQ, D), torch.randn(B, TK, D)
    output, weights = attend(ours, x, seen, None, need_weights=True)
    width, heads = D // H, []
    for head in range(H):
        own = slice(head * width, (head + 1) * width)
        query, key, value = (
            states @ linear.weight[own].T + linear.bias[own]
            for states, linear in ((x, ours.w_q), (seen, ours.w_k), (seen, ours.w_v))
        )
        alone = (query @ key.transpose(1, 2) / math.sqrt(width)).softmax(-1)
        assert_close(weights[:, head], alone, atol=1e-6, rtol=1e-5)
        heads.append(alone @ value)
    assert_close(output, ours.w_o(torch.cat(heads, -1)), atol=1e-6, rtol=1e-5)


def test_identity_queries_and_keys_of_width_two_give_the_textbook_weights():
    eye = torch.eye(2)[None, None]
    expected = torch.tensor([[0.670, 0.330], [0.330, 0.670]])  # softmax(1/√2, 0)
    assert_close(weights_of(eye, eye, None)[0, 0], expected, atol=5e-4, rtol=0)


def test_large_scores_give_finite_weights():
    query = torch.tensor([[[[1e4]]]])
    weights = weights_of(query, torch.tensor([[[[1e4], [-1e4]]]]), torch.tensor([True, True]))
    assert_close(weights.flatten(), torch.tensor([1.0, 0.0]), atol=0, rtol=0)


def test_hooks_read_the_weights_before_dropout():
    generator = torch.Generator().manual_seed(1)
    ours = MultiHeadAttention(D, H, dropout=0.5, generator=generator).train()
    x = torch.randn(B, TQ, D)
    first, weights = attend(ours, x, x, None, need_weights=True)
    second, again = attend(ours, x, x, None, need_weights=True)
    assert not torch.equal(first, second)  # dropout fell on the weights …
    assert_close(weights, again, atol=0, rtol=0)  # … but not on those reported
    assert_close(weights.sum(-1), torch.ones(B, H, TQ), atol=1e-6, rtol=0)


def test_dropout_is_applied_when_no_hook_reads_the_weights():
    ours = MultiHeadAttention(D, H, dropout=0.5, generator=torch.Generator().manual_seed(1)).train()
    x = torch.randn(B, TQ, D)
    assert not torch.equal(attend(ours, x, x, None)[0], attend(ours, x, x, None)[0])


def test_d_model_must_be_divisible_by_num_heads():
    with pytest.raises(ValueError, match="d_model=30 must be divisible by num_heads=4"):
        MultiHeadAttention(30, 4)


@pytest.mark.parametrize(("length", "past"), [(4, 0), (3, 2), (2, 5)])
def test_causal_mask_allows_past_tokens_and_the_token_itself(length, past):
    mask = causal_mask(length, past)
    expected = [[column <= past + row for column in range(past + length)] for row in range(length)]
    assert mask.tolist() == expected


def test_a_single_new_token_needs_no_causal_mask():
    assert causal_mask(1, 3) is None
