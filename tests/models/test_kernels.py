"""Every fast kernel equals the plain line beside it."""

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


def test_keep_mask_is_drawn_like_the_plain_line():
    for p in (0.1, 0.5):
        keep = kernels.keep_mask(torch.empty(200, 100), p, torch.Generator().manual_seed(0))
        plain = torch.empty(200, 100).bernoulli_(1 - p, generator=torch.Generator().manual_seed(0))
        assert keep.shape == plain.shape
        assert keep.float().mean().item() == pytest.approx(plain.mean().item(), abs=0.015)
