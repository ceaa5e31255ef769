"""Products of 8-bit integers, for translating many texts on a CPU.

Every row is rounded with a scale of its own: those of a weight once, those of its inputs at every call (vector-wise
quantization; Dettmers et al. 2022, "LLM.int8()", https://arxiv.org/abs/2208.07339, section 3.1). So the output of a
source does not depend on the rest of its batch.
"""

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn

from core.models.kernels import PackedLinear
from core.models.seq2seq import Seq2Seq
from core.models.step_decoder import has_step_decoder, joined_weights
from core.models.step_weights import LinearMap
from core.models.transformer import Transformer
from core.storage.errors import InputError

MIN_NUMEL = 2**15  # of a weight: with fewer numbers, rounding the inputs takes longer than the product saves
_LARGEST = 127


def rounded(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round a matrix (N, M) to 8 bits: the scales (N,) float of its rows, and (N, M) int8.

    A number is its row's scale times its integer of -127 to 127, and is off by half of the scale at most.
    """
    matrix = matrix.float()
    scales = matrix.abs().amax(dim=1) / _LARGEST
    steps = matrix / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    return scales, steps.round_().to(torch.int8)


class Int8Linear(nn.Module):
    """A linear map (N, K) and its activation, with weights and inputs of 8 bits; integers are added in 32 bits.

    Args:
        activation: "relu" or "gelu"; "none" without.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, activation: str = "none") -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._scales, integers = rounded(weight.detach())
        self._integers, self._bias, self._activation = integers.t(), bias.detach(), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (…, K) to (…, N) float."""
        scales, integers = rounded(x.flatten(0, -2))
        # torch._int_mm reads a single row with strides (1, 1) wrongly; contiguous() keeps such strides.
        integers = integers.clone(memory_format=torch.contiguous_format)
        y = torch._int_mm(integers, self._integers).float()  # then in place: a copy takes longer than the product
        y = y.mul_(scales[:, None]).mul_(self._scales).add_(self._bias).unflatten(0, x.shape[:-1])
        return y if self._activation == "none" else y.relu_() if self._activation == "relu" else F.gelu(y)

    def columns(self, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Map (B, K) to columns (N, B) float, without the activation.

        Args:
            out: (N, B) float, to be written to; None makes a new tensor.
        """
        y = self(x).t()
        return y.contiguous() if out is None else out.copy_(y)


def int8_copy(model: Seq2Seq) -> Transformer:
    """Return a copy of a model that decodes with 8-bit products with its weights of at least ``MIN_NUMEL`` numbers.

    Embeddings, norms, attention and products with smaller weights stay in float32. Later changes of the model's weights
    do not change the copy.

    Raises:
        InputError: ``StepDecoder`` cannot decode with this model, or all products have smaller weights.
    """
    if not has_step_decoder(model):
        raise InputError(
            "int8 needs an encoder-decoder Transformer without relative positions, with full attention scaled by √K "
            f"and a feed-forward network of relu or gelu; this model ({type(model).__name__}) is not one"
        )
    copy = deepcopy(model).eval()
    for module in list(copy.encoder_layers.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and child.weight.numel() >= MIN_NUMEL:
                setattr(module, name, Int8Linear(child.weight, child.bias))
    copy.step_weights = joined_weights(copy, _linear)
    of_decoder = [
        copy.step_weights.score,
        *(each for layer in copy.step_weights.layers for each in vars(layer).values()),
    ]
    if not any(isinstance(each, Int8Linear) for each in (*copy.modules(), *of_decoder)):
        raise InputError(
            f"int8 is for products with weights of at least {MIN_NUMEL:,} numbers, and this model has none; with "
            "smaller ones it would be slower"
        )
    return copy


def _linear(weight: torch.Tensor, bias: torch.Tensor, activation: str = "none") -> LinearMap:
    kind = Int8Linear if weight.numel() >= MIN_NUMEL else PackedLinear
    return kind(weight, bias, activation)
