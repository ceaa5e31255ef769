"""Sums of log-probabilities over the tokens of a batch, which a label-smoothed loss is made of."""

from collections.abc import Iterator
from typing import Any

import torch

from core.text.vocab import PAD_ID

LOGITS_AT_ONCE = 2_000_000  # 8 MB; with a vocabulary of 4,000, all logits of a batch are eight times as many

Sums = tuple[torch.Tensor, torch.Tensor]


def log_prob_sums(logits: torch.Tensor, targets: torch.Tensor) -> Sums:
    """Sum the log-probabilities of the targets, and those of all tokens; PAD counts neither as target nor as token.

    Plain: ``_sums(logits, targets)``. With many logits some rows are computed after the other, and again in the
    backward pass: instead of four float32 copies of the logits there is their gradient alone.

    Args:
        logits: (N, V) float of any precision; the rest is computed in float32 at least.
        targets: (N,) int64.

    Returns:
        Two scalars.
    """
    if logits.numel() <= LOGITS_AT_ONCE:
        return _sums(logits, targets)
    return _SumsByRows.apply(logits, targets)


def _sums(logits: torch.Tensor, targets: torch.Tensor) -> Sums:
    counted = targets != PAD_ID
    log_probs = logits[counted].to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    of_targets = log_probs.gather(1, targets[counted][:, None]).sum()
    return of_targets, log_probs[:, PAD_ID + 1 :].flatten().sum()  # PAD is the first token


class _SumsByRows(torch.autograd.Function):
    """``_sums`` that saves the logits only."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> Sums:
        ctx.save_for_backward(logits, targets)
        of_targets, of_tokens = zip(*(_sums(*rows) for rows in _some_rows(logits, targets)), strict=True)
        return torch.stack(of_targets).sum(), torch.stack(of_tokens).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, targets = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for part, some, chosen in _some_rows(gradient, logits, targets):
            with torch.enable_grad():
                some = some.detach().requires_grad_()
                sums = _sums(some, chosen)
            part.copy_(torch.autograd.grad(sums, some, gradients)[0])
        return gradient, None


def _some_rows(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield views of some rows of each tensor, as many as have ``LOGITS_AT_ONCE`` logits."""
    rows = max(1, LOGITS_AT_ONCE // tensors[0].shape[1])
    return zip(*(each.split(rows) for each in tensors), strict=True)
