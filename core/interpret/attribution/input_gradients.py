"""Integrated gradients, saliency and gradient × input for the source's tokens and the decoder's prefix."""

from dataclasses import dataclass

import numpy as np
import torch

from core.interpret.attribution.embedded_inputs import EmbeddedInputs, embedded_inputs
from core.interpret.attribution.prediction import Prediction
from core.models import Seq2Seq

SALIENCY_LIMITS = (
    "Shows to which tokens' embeddings the logit is most sensitive nearby; it cannot show how much a token "
    "contributes, and is small where the model is saturated."
)
GRADIENT_LIMITS = (
    "Shows what each token adds to the logit if the model were linear in its embeddings, which it is not; it cannot "
    "show what happens farther from this input."
)
INTEGRATED_LIMITS = (
    "Shows each token's share of the logit's change from an input without embeddings to this one, and the shares sum "
    "to it; it cannot show interactions, and another baseline would give other shares."
)
NUM_NODES = 50, 100, 200, 400  # of the Gauss-Legendre quadrature; more if the gap is too large
MAX_GAP = 0.01  # of the difference of the two logits


@dataclass(frozen=True, eq=False)
class InputAttribution:
    """One number per token that the model read.

    Attributes:
        source: (S,) float, of the source's tokens, BOS and EOS included.
        prefix: (T,) float, of the decoder's tokens, BOS included; (0,) for an encoder-only model, which reads none.
        logit: the explained score: logit of the target, minus the foil's if there is one.
    """

    source: torch.Tensor
    prefix: torch.Tensor
    logit: float


@dataclass(frozen=True, eq=False)
class IntegratedGradients(InputAttribution):
    """Integrated gradients, which sum to ``logit - baseline_logit``.

    Attributes:
        baseline_logit: the explained score of the baseline, with PAD's embedding at every token and unchanged
            positions.
        gap: sum of the attributions minus (logit - baseline_logit): the error of the integration.
        num_nodes: points of the path that were evaluated.
    """

    baseline_logit: float
    gap: float
    num_nodes: int


def saliency(model: Seq2Seq, prediction: Prediction) -> InputAttribution:
    """Return the norm (L2) of the logit's gradient with respect to each token's embedding (Simonyan et al. 2014).

    Args:
        model: in evaluation mode, of any family. Embeddings are the scaled ones, without positions.
    """
    inputs = embedded_inputs(model, prediction)
    gradients, logit = _gradients(inputs, inputs.tokens)
    return InputAttribution(*inputs.by_side(gradients[0].norm(dim=-1)), logit=logit[0].item())


def gradient_times_input(model: Seq2Seq, prediction: Prediction) -> InputAttribution:
    """Return each token's embedding times the logit's gradient with respect to it, summed over the dimensions.

    Args:
        model: in evaluation mode, of any family. PAD's embedding, which is zero, is subtracted from the embedding.
    """
    inputs = embedded_inputs(model, prediction)
    gradients, logit = _gradients(inputs, inputs.tokens)
    products = (gradients * (inputs.tokens - inputs.baseline))[0].sum(dim=-1)
    return InputAttribution(*inputs.by_side(products), logit=logit[0].item())


def integrated_gradients(model: Seq2Seq, prediction: Prediction) -> IntegratedGradients:
    """Integrate gradient × input from the baseline to the input, source and prefix together (Sundararajan et al. 2017).

    The baseline has PAD's embedding, which is zero, at every token, BOS and EOS too, and the same positions and mask.
    All nodes of the quadrature are one batch. A pre-norm model without positions in its embeddings changes within the
    first hundredth of the path, where its norm divides by almost zero, and needs more nodes.

    Args:
        model: in evaluation mode, of any family.
    """
    inputs = embedded_inputs(model, prediction)
    with torch.no_grad():
        logit, baseline_logit = inputs.score(torch.cat([inputs.tokens, inputs.baseline])).tolist()
    for num_nodes in NUM_NODES:
        shares = _integrated(inputs, num_nodes)
        gap = shares.sum().item() - (logit - baseline_logit)
        if abs(gap) <= MAX_GAP * abs(logit - baseline_logit):
            break
    source, prefix = inputs.by_side(shares)
    return IntegratedGradients(source, prefix, logit, baseline_logit, gap, num_nodes)


def _integrated(inputs: EmbeddedInputs, num_nodes: int) -> torch.Tensor:
    """Return each token's attribution, (S + T,), from a quadrature with so many nodes."""
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.legendre.leggauss(num_nodes))
    alphas = ((nodes + 1) / 2).to(inputs.tokens)[:, None, None]
    difference = inputs.tokens - inputs.baseline
    gradients, _ = _gradients(inputs, inputs.baseline + alphas * difference)
    mean = (gradients * (weights / 2).to(inputs.tokens)[:, None, None]).sum(dim=0)
    return (mean * difference[0]).sum(dim=-1)


def _gradients(inputs: EmbeddedInputs, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients (N, S + T, E) of the scores of embedded inputs, and the scores (N,)."""
    with torch.enable_grad():
        tokens = tokens.detach().requires_grad_()
        scores = inputs.score(tokens)
        gradients = torch.autograd.grad(scores.sum(), tokens)[0]
    return gradients, scores.detach()
