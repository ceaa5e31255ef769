"""The training loss of a batch: cross-entropy, with label smoothing and with full or partial teacher forcing."""

import contextlib
from collections.abc import Callable

import torch

from core.config.training import TrainingConfig
from core.evaluation.accuracy import sequence_loss
from core.evaluation.stepwise import stepwise_logits
from core.models import Seq2Seq
from core.tasks import Batch
from core.text.vocab import PAD_ID
from core.training.log_probs import log_prob_sums
from core.training.precision import computes_in_bfloat16

LossFunction = Callable[..., torch.Tensor]  # training_loss, or a replacement with the same parameters


def training_loss(
    model: Seq2Seq, batch: Batch, config: TrainingConfig, *, teacher_forcing_ratio: float, generator: torch.Generator
) -> torch.Tensor:
    """Compute the differentiable loss of a batch, in nats per non-PAD token.

    If ``computes_in_bfloat16``, matrix products are computed in bfloat16 (torch.autocast, on CPU and CUDA); weights,
    softmax, norms and the loss itself stay in float32.

    Args:
        teacher_forcing_ratio: fraction of decoder input tokens taken from the target, 0-1; below 1 they are drawn
            with ``generator``.
    """
    logits = batch_logits(model, batch, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=generator)
    return loss_of_logits(logits, batch.tgt_out, config)


def loss_of_logits(logits: torch.Tensor, tgt_out: torch.Tensor, config: TrainingConfig) -> torch.Tensor:
    """Compute the cross-entropy in nats per non-PAD token, with label smoothing if a preset says so.

    Args:
        logits: (B, T, V) float of any precision; the loss is computed in at least float32.
        tgt_out: (B, T) int64.
    """
    if config.label_smoothing:
        return smoothed_loss(logits, tgt_out, config.label_smoothing)
    return sequence_loss(logits.float(), tgt_out)


def batch_logits(
    model: Seq2Seq, batch: Batch, config: TrainingConfig, *, teacher_forcing_ratio: float, generator: torch.Generator
) -> torch.Tensor:
    """Compute the logits of a batch, (B, T, V) in the preset's precision; arguments as for ``training_loss``."""
    is_bfloat16 = computes_in_bfloat16(config, batch.src.device)
    with torch.autocast(batch.src.device.type, torch.bfloat16) if is_bfloat16 else contextlib.nullcontext():
        return _logits(model, batch, teacher_forcing_ratio, generator)


def smoothed_loss(logits: torch.Tensor, tgt_out: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Compute the cross-entropy with label smoothing, in nats per non-PAD token.

    Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4. PAD is never predicted: it gets no part of the
    smoothed target distribution, and positions with PAD as their target do not count. ``F.cross_entropy`` with
    ``label_smoothing`` would spread the mass over PAD too.

    Args:
        logits: (B, T, V) float.
        tgt_out: (B, T) int64.
        smoothing: probability mass spread evenly over all tokens but PAD, 0-1.
    """
    of_targets, of_tokens = log_prob_sums(logits.flatten(0, 1), tgt_out.flatten())
    positions, tokens = (tgt_out != PAD_ID).sum(), logits.shape[-1] - 1
    return (1 - smoothing) * (-of_targets / positions) + smoothing * (-of_tokens / (positions * tokens))


def _logits(model: Seq2Seq, batch: Batch, teacher_forcing_ratio: float, generator: torch.Generator) -> torch.Tensor:
    """Compute the logits of a batch, (B, T, V), with that fraction of target tokens in the decoder input."""
    if teacher_forcing_ratio == 1:
        return model(batch.src, batch.tgt_in)
    is_forced = torch.empty(batch.tgt_in.shape, device=generator.device).bernoulli_(
        teacher_forcing_ratio, generator=generator
    )
    return stepwise_logits(model, batch, is_forced.bool())
