"""Bugs in what a run learns from, and in how it learns: pairs, loss, settings."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.config.sections import TrainingConfig
from core.models import Seq2Seq
from core.tasks import Batch
from core.teaching.bugs.bug import Bug, DataBug
from core.text.vocab import EOS_ID, PAD_ID
from core.training.loss import LossFunction, batch_logits

FAR_TOO_HIGH = 0.3  # a hundred times what Adam usually gets; weights are about half as large


@dataclass(frozen=True)
class _Unshifted(Batch):
    """Pairs whose decoder input is one place too far."""

    @property
    def tgt_in(self) -> torch.Tensor:
        """(B, T) int64: the tokens that are to be produced, where those before them should be."""
        return self.tgt_out


class TargetsNotShifted(DataBug):
    """The decoder reads the token that it is to produce: copying it is all that there is to learn."""

    def on_pairs(self, pairs: Batch) -> Batch:
        """Return the pairs, to be read unshifted."""
        return _Unshifted(pairs.src, pairs.tgt)


class NoEosInTargets(DataBug):
    """Answers do not end with EOS, so nothing is learned about where to stop."""

    def on_pairs(self, pairs: Batch) -> Batch:
        """Return the pairs with PAD for each EOS of a target."""
        return Batch(pairs.src, pairs.tgt.masked_fill(pairs.tgt == EOS_ID, PAD_ID))


class PadInTheLoss(Bug):
    """The loss is the mean over all places of a batch, those of PAD included."""

    def on_loss_function(self, loss_function: LossFunction) -> LossFunction:
        """Return a loss that ignores nothing; PAD is a token like any other to it."""
        return _loss_over_pad


def _loss_over_pad(
    model: Seq2Seq, batch: Batch, config: TrainingConfig, *, teacher_forcing_ratio: float, generator: torch.Generator
) -> torch.Tensor:
    logits = batch_logits(model, batch, config, teacher_forcing_ratio=teacher_forcing_ratio, generator=generator)
    return F.cross_entropy(logits.flatten(0, 1), batch.tgt_out.flatten(), label_smoothing=config.label_smoothing)


class LearningRateTooHigh(Bug):
    """Full steps of ``FAR_TOO_HIGH`` from the first update on, never made smaller."""

    def on_training(self, config: TrainingConfig) -> TrainingConfig:
        """Return the settings with that learning rate."""
        return config.model_copy(
            update={"learning_rate": FAR_TOO_HIGH, "warmup_steps": 0, "schedule": "constant", "max_gradient_norm": 1e3}
        )
