"""Bugs in the data, the loss and the training settings."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.config.training import TrainingConfig
from core.models import Seq2Seq
from core.tasks import Batch
from core.teaching.bugs.bug import Bug, DataBug
from core.text.vocab import EOS_ID, PAD_ID
from core.training.loss import LossFunction, batch_logits

EXCESSIVE_LEARNING_RATE = 0.3  # about a hundred times the usual rate for Adam; weights are about half as large


@dataclass(frozen=True)
class _Unshifted(Batch):
    """Pairs in which the decoder input is the target itself, not shifted right."""

    @property
    def tgt_in(self) -> torch.Tensor:
        """(B, T) int64: the tokens to predict, instead of BOS and the tokens before them."""
        return self.tgt_out


class TargetsNotShifted(DataBug):
    """The decoder reads the token that it has to predict, so copying its input is enough."""

    def on_pairs(self, pairs: Batch) -> Batch:
        """Return the pairs with unshifted decoder inputs."""
        return _Unshifted(pairs.src, pairs.tgt)


class NoEosInTargets(DataBug):
    """Targets do not end with EOS, so the model does not learn to stop."""

    def on_pairs(self, pairs: Batch) -> Batch:
        """Return the pairs with every EOS of a target replaced by PAD."""
        return Batch(pairs.src, pairs.tgt.masked_fill(pairs.tgt == EOS_ID, PAD_ID))


class PadInTheLoss(Bug):
    """The loss is the mean over all positions of a batch, PAD included."""

    def on_loss_function(self, loss_function: LossFunction) -> LossFunction:
        """Return a loss that treats PAD as any other token."""
        return _loss_over_pad


def _loss_over_pad(
    model: Seq2Seq, batch: Batch, config: TrainingConfig, *, teacher_forcing_ratio: float, generator: torch.Generator
) -> torch.Tensor:
    logits = batch_logits(model, batch, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=generator)
    return F.cross_entropy(logits.flatten(0, 1), batch.tgt_out.flatten(), label_smoothing=config.label_smoothing)


class LearningRateTooHigh(Bug):
    """A constant learning rate of ``EXCESSIVE_LEARNING_RATE``, without warm-up or decay."""

    def on_training(self, config: TrainingConfig) -> TrainingConfig:
        """Return the settings with that learning rate."""
        changes = {"learning_rate": EXCESSIVE_LEARNING_RATE, "warmup_steps": 0, "schedule": "constant"}
        return config.model_copy(update=changes | {"max_gradient_norm": 1e3})
