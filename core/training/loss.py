"""The training loss of a batch: cross-entropy, with label smoothing and with full or partial teacher forcing."""

import contextlib
from collections.abc import Callable

import torch

from core.config.sections import TrainingConfig
from core.evaluation.accuracy import sequence_loss
from core.models import Seq2Seq
from core.tasks import Batch
from core.text.vocab import PAD_ID

LossFunction = Callable[..., torch.Tensor]  # training_loss, or a replacement with the same parameters


def training_loss(
    model: Seq2Seq, batch: Batch, config: TrainingConfig, *, teacher_forcing_ratio: float, generator: torch.Generator
) -> torch.Tensor:
    """Compute the differentiable loss of a batch, in nats per non-PAD token.

    With ``precision: bfloat16`` matrix products are computed in bfloat16 (torch.autocast, on CPU and CUDA); weights,
    softmax, norms and the loss itself stay in float32.

    Args:
        teacher_forcing_ratio: fraction of decoder input tokens taken from the target, 0-1; below 1 they are drawn
            with ``generator``.
    """
    logits = batch_logits(model, batch, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=generator)
    if config.label_smoothing:
        return smoothed_loss(logits, batch.tgt_out, config.label_smoothing)
    return sequence_loss(logits, batch.tgt_out)


def batch_logits(
    model: Seq2Seq, batch: Batch, config: TrainingConfig, *, teacher_forcing_ratio: float, generator: torch.Generator
) -> torch.Tensor:
    """Compute the logits of a batch, (B, T, V) float32; arguments as for ``training_loss``."""
    is_bfloat16 = config.precision == "bfloat16"
    with torch.autocast(batch.src.device.type, torch.bfloat16) if is_bfloat16 else contextlib.nullcontext():
        logits = _logits(model, batch, teacher_forcing_ratio, generator)
    return logits.float() if is_bfloat16 else logits


def smoothed_loss(logits: torch.Tensor, tgt_out: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Compute the cross-entropy with label smoothing, in nats per non-PAD token.

    Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4. PAD is never predicted: it gets no part of the
    smoothed target distribution, and positions whose target is PAD do not count. ``F.cross_entropy`` with
    ``label_smoothing`` would spread the mass over PAD too.

    Args:
        logits: (B, T, V) float.
        tgt_out: (B, T) int64.
        smoothing: probability mass spread evenly over all tokens but PAD, 0-1.
    """
    counted = tgt_out != PAD_ID
    nll = -logits.log_softmax(dim=-1)[counted]  # (N, V), of the N positions that count
    of_target = nll.gather(1, tgt_out[counted][:, None]).mean()
    of_any_token = torch.cat([nll[:, :PAD_ID], nll[:, PAD_ID + 1 :]], dim=1).mean()
    return (1 - smoothing) * of_target + smoothing * of_any_token


def _logits(model: Seq2Seq, batch: Batch, teacher_forcing_ratio: float, generator: torch.Generator) -> torch.Tensor:
    """Compute the logits of a batch, (B, T, V), with that fraction of target tokens in the decoder input."""
    if teacher_forcing_ratio == 1:
        return model(batch.src, batch.tgt_in)
    is_forced = torch.empty(batch.tgt_in.shape, device=generator.device).bernoulli_(
        teacher_forcing_ratio, generator=generator
    )
    return stepwise_logits(model, batch, is_forced.bool())


def stepwise_logits(model: Seq2Seq, batch: Batch, is_forced: torch.Tensor) -> torch.Tensor:
    """Decode a batch step by step, feeding back some of the model's own predictions (Bengio et al. 2015).

    Gradients flow through the logits, not through the choice of tokens.

    Args:
        is_forced: (B, T) bool. True: the decoder reads the target token; False: its most likely token of the step
            before. The first token is BOS in any case.

    Returns:
        (B, T, V) logits.
    """
    memory, cache = model.encode(batch.src), None
    logits: list[torch.Tensor] = []
    for position, target in enumerate(batch.tgt_in.split(1, dim=1)):
        predicted = logits[-1].argmax(dim=-1) if logits else target  # (B, 1)
        token = torch.where(is_forced[:, position, None], target, predicted)
        step = model.decode(token, memory, cache)
        cache = step.cache
        logits.append(step.logits)
    return torch.cat(logits, dim=1)
