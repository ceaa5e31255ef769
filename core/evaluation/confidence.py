"""How sure a model is of an output, compared with its correct outputs on validation inputs.

The measure is the mean log-probability of the output's tokens ("Unsupervised Quality Estimation for Neural Machine
Translation", Fomicheva et al., 2020), which is lower on inputs that are unlike the training data ("A Baseline for
Detecting Misclassified and Out-of-Distribution Examples", Hendrycks and Gimpel, 2017).
"""

import math

import torch

from core.evaluation.outputs import Outputs

SHARE = 0.92  # of the correct outputs that reach the threshold: nine in ten, with a margin for the sample
SURE = 0.9  # mean probability, geometric, above which no output is called unsure: where nearly all outputs are correct
MIN_CORRECT = 20  # outputs from which a share of nine in ten can be read


def confidence_threshold(outputs: Outputs, is_exact: torch.Tensor) -> float | None:
    """Return the mean log-probability per token, nats, that nine in ten correct outputs reach, at most log ``SURE``.

    Args:
        outputs: of greedy decoding, from validation inputs. If those correct are fewer than ``MIN_CORRECT``, there
            is no threshold.
        is_exact: (N,) bool, which of them are correct.
    """
    correct = outputs.mean_log_probs[is_exact]
    if len(correct) < MIN_CORRECT:
        return None
    return round(min(torch.quantile(correct.double(), 1 - SHARE).item(), math.log(SURE)), 4)
