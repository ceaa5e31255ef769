"""Sums of log-probabilities over the tokens of a batch, for a label-smoothed loss."""

from collections.abc import Iterator
from typing import Any

import torch

from core.text.vocab import PAD_ID

LOGITS_AT_ONCE = 800_000  # 3.2 MB, which stay in the processor's cache

Sums = tuple[torch.Tensor, torch.Tensor]


def log_prob_sums(logits: torch.Tensor, targets: torch.Tensor) -> Sums:
    """Sum the log-probabilities of the targets and of all tokens; PAD counts neither as a target nor as a token.

    Plain: ``_sums(logits, targets)``. Large logits are processed in groups of rows, and again in the backward pass, so
    memory holds only their gradient instead of four float32 copies; this takes a quarter of the time.

    Args:
        logits: (N, V) float of any precision; everything else is computed in at least float32.
        targets: (N,) int64.

    Returns:
        Two scalars.
    """
    if torch.compiler.is_exporting():
        return _sums_of_all_rows(logits, targets)
    if logits.numel() <= LOGITS_AT_ONCE:
        return _sums(logits, targets)
    return _SumsByRows.apply(logits, targets)


def _sums(logits: torch.Tensor, targets: torch.Tensor) -> Sums:
    counted = targets != PAD_ID
    log_probs = logits[counted].to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    of_targets = log_probs.gather(1, targets[counted][:, None]).sum()
    return of_targets, log_probs[:, PAD_ID + 1 :].flatten().sum()  # PAD is the first token


def _sums_of_all_rows(logits: torch.Tensor, targets: torch.Tensor) -> Sums:
    """``_sums`` with rows of PAD times zero: a graph cannot contain sizes that depend on values."""
    counted = (targets != PAD_ID)[:, None]
    log_probs = logits.float().log_softmax(dim=-1) * counted
    return log_probs.gather(1, targets[:, None]).sum(), log_probs[:, PAD_ID + 1 :].sum()


class _SumsByRows(torch.autograd.Function):
    """``_sums``, but saves only the logits.

    With probability p, V tokens without PAD, and the gradients g and h of the sums over targets and over tokens, the
    gradient of a row of logits is g · onehot(target) + h - (g + V h) p; PAD has no h.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> Sums:
        ctx.save_for_backward(logits, targets)
        of_targets, of_tokens = [], []
        for some, chosen in _some_rows(logits, targets):
            x = some.to(torch.promote_types(some.dtype, torch.float32))
            log_sum, is_pad = x.logsumexp(dim=-1), chosen == PAD_ID
            of_targets.append((x.gather(1, chosen[:, None])[:, 0] - log_sum).masked_fill(is_pad, 0).sum())
            tokens = x[:, PAD_ID + 1 :]  # PAD is the first token
            of_tokens.append((tokens.sum(dim=-1) - tokens.shape[1] * log_sum).masked_fill(is_pad, 0).sum())
        return torch.stack(of_targets).sum(), torch.stack(of_tokens).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, targets = ctx.saved_tensors
        of_target, of_token = gradients
        gradient = torch.empty_like(logits)
        for part, some, chosen in _some_rows(gradient, logits, targets):
            x = some.softmax(dim=-1, dtype=torch.promote_types(some.dtype, torch.float32))
            x *= -(of_target + (x.shape[1] - 1) * of_token)
            x[:, PAD_ID + 1 :] += of_token
            x.scatter_add_(1, chosen[:, None], of_target.expand(len(x), 1))
            part.copy_(x.masked_fill_((chosen == PAD_ID)[:, None], 0))
        return gradient, None


def _some_rows(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield views of consecutive rows of each tensor, with up to ``LOGITS_AT_ONCE`` logits each."""
    rows = max(1, LOGITS_AT_ONCE // tensors[0].shape[1])
    return zip(*(each.split(rows) for each in tensors), strict=True)
