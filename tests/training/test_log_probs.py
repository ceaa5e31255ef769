"""The sums of a smoothed loss: some rows at a time equal the plain line, in a fraction of its memory."""

import pytest
import torch
from torch.testing import assert_close

from core.text.vocab import PAD_ID
from core.training import log_probs
from core.training.log_probs import log_prob_sums
from core.training.peak_memory import PeakMemory

N, V = 100, 40


def sums_and_gradient(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(N, V, generator=generator).to(dtype)
    logits[25] = torch.nan  # of a position that does not count
    logits.requires_grad_()
    targets = torch.randint(0, V, (N,), generator=generator)
    targets[20:50] = PAD_ID  # some rows at a time, and none of them counts
    of_targets, of_tokens = log_prob_sums(logits, targets)
    (0.9 * of_targets + 0.1 * of_tokens).backward()
    return torch.stack((of_targets, of_tokens)).detach(), logits.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_by_rows_and_their_gradient_are_those_of_the_plain_line(dtype, monkeypatch):
    sums, gradient = sums_and_gradient(dtype)
    monkeypatch.setattr(log_probs, "LOGITS_AT_ONCE", 7 * V)
    by_rows, by_rows_gradient = sums_and_gradient(dtype)
    assert by_rows_gradient.dtype == dtype
    assert_close(by_rows_gradient, gradient)
    assert not by_rows_gradient[20:50].any()
    assert_close(by_rows, sums)


def test_sums_by_rows_allocate_the_gradient_and_little_more(monkeypatch):
    def copies() -> float:
        logits = torch.empty(1_000, 500, device="meta", requires_grad=True)
        targets = torch.ones(1_000, dtype=torch.int64, device="meta")
        with PeakMemory() as peak:
            sum(log_prob_sums(logits, targets)).backward()
        return peak.highest / (logits.numel() * 4)

    assert copies() > 3
    monkeypatch.setattr(log_probs, "LOGITS_AT_ONCE", 500 * 50)
    assert 1 <= copies() < 1.5
