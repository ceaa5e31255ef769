"""Occlusion: how much the logit falls without one token (Zeiler & Fergus 2014; Li et al. 2016)."""

import torch

from core.interpret.attribution.embedded_inputs import embedded_inputs
from core.interpret.attribution.input_gradients import InputAttribution
from core.interpret.attribution.prediction import Prediction
from core.models import Seq2Seq

LIMITS = (
    "Shows how much the logit falls without a token, which is an effect and not an estimate; it cannot show what "
    "tokens do together, and a missing embedding is an input that the model was not trained on."
)


@torch.no_grad()
def occlusion(model: Seq2Seq, prediction: Prediction) -> InputAttribution:
    """Return the logit minus the logit with each token's embedding replaced by that of PAD, which is zero.

    The position remains, and other tokens may still attend to it. Removing it would shorten the input, which changes
    the answer of tasks such as reversal, and not every vocabulary has UNK. This is the baseline of
    ``integrated_gradients``, applied to one token at a time. All tokens are one batch.

    Args:
        model: in evaluation mode, of any family.
    """
    inputs = embedded_inputs(model, prediction)
    count = inputs.tokens.shape[1]
    is_occluded = torch.eye(count, dtype=torch.bool, device=inputs.tokens.device)[..., None]
    logit = inputs.score(inputs.tokens)
    without = inputs.score(torch.where(is_occluded, inputs.baseline, inputs.tokens))
    return InputAttribution(*inputs.by_side(logit - without), logit=logit.item())
