"""What an update makes smaller: the loss of a batch, under teacher forcing or less of it."""

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
    """Compute the loss of a batch, in nats per non-PAD token, to be differentiated.

    With ``precision: bfloat16`` matrix products are computed in bfloat16 (torch.autocast, on CPU and CUDA alike);
    weights, softmax, norms and the loss itself stay in float32.

    Args:
        teacher_forcing_ratio: share of the decoder's input that is true, 0-1; less than 1 is drawn from the generator.
    """
    logits = batch_logits(model, batch, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=generator)
    if config.label_smoothing:
        return smoothed_loss(logits, batch.tgt_out, config.label_smoothing)
    return sequence_loss(logits, batch.tgt_out)


def batch_logits(
    model: Seq2Seq, batch: Batch, config: TrainingConfig, *, teacher_forcing_ratio: float, generator: torch.Generator
) -> torch.Tensor:
    """Score the targets of a batch, (B, T, V) float32; arguments as of ``training_loss``."""
    is_half = config.precision == "bfloat16"
    with torch.autocast(batch.src.device.type, torch.bfloat16) if is_half else contextlib.nullcontext():
        logits = _logits(model, batch, teacher_forcing_ratio, generator)
    return logits.float() if is_half else logits


def smoothed_loss(logits: torch.Tensor, tgt_out: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Cross-entropy in nats against targets of which a share is spread evenly over all tokens but PAD.

    Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4. PAD is nothing to be predicted: it gets no
    share, and places whose target it is do not count.

    Args:
        logits: (B, T, V) float.
        tgt_out: (B, T) int64.
        smoothing: the share, 0-1.
    """
    surprise = -logits.log_softmax(dim=-1)[tgt_out != PAD_ID]  # (N, V), of the N tokens that count
    true = surprise.gather(1, tgt_out[tgt_out != PAD_ID][:, None]).mean()
    any_token = torch.cat([surprise[:, :PAD_ID], surprise[:, PAD_ID + 1 :]], dim=1).mean()
    return (1 - smoothing) * true + smoothing * any_token


def _logits(model: Seq2Seq, batch: Batch, teacher_forcing_ratio: float, generator: torch.Generator) -> torch.Tensor:
    """Score the targets of a batch, (B, T, V), with that share of true tokens in the decoder's input."""
    if teacher_forcing_ratio == 1:
        return model(batch.src, batch.tgt_in)[0]
    is_true = torch.empty(batch.tgt_in.shape, device=generator.device).bernoulli_(
        teacher_forcing_ratio, generator=generator
    )
    return stepwise_logits(model, batch, is_true.bool())


def stepwise_logits(model: Seq2Seq, batch: Batch, is_true: torch.Tensor) -> torch.Tensor:
    """Score the targets of a batch step by step, the model reading some of its own choices (Bengio et al. 2015).

    Gradients flow through the logits, not through the choices.

    Args:
        is_true: (B, T) bool, True where the decoder reads the true token, False where it reads the one it found
            likeliest the step before. The first is BOS in any case.

    Returns:
        (B, T, V) logits.
    """
    memory, cache, logits = model.encode(batch.src), None, []
    for place, truth in enumerate(batch.tgt_in.split(1, dim=1)):
        token = torch.where(is_true[:, place, None], truth, logits[-1].argmax(dim=-1)) if logits else truth  # (B, 1)
        step = model.decode(token, memory, cache)
        cache = step.cache
        logits.append(step.logits)
    return torch.cat(logits, dim=1)
