"""Initial weights, all drawn from one generator."""

import torch
from torch import nn

from core.models.additive_attention import LocationSensitiveAttention
from core.models.attention import MultiHeadAttention
from core.models.cells import Cell
from core.models.embeddings import Embedding
from core.models.layers import FeedForward
from core.models.relative_bias import RelativeBias
from core.text.vocab import PAD_ID

LOCATION_GAIN = 4.0  # of previous weights, whose sum is 1, so that a few of them matter as much as a key
RELATIVE_BIAS_STD = 0.1  # of scores, whose differences are about 1 where attention is sharp


def initialize(
    model: nn.Module, generator: torch.Generator, *, embedding_gain: float = 1.0, sublayer_gain: float = 1.0
) -> None:
    """Draw every parameter of a model, in place.

    Matrices are Xavier-uniform (Glorot & Bengio 2010) and biases zero. Embeddings have standard deviation gain /
    √d_model, so that with a gain of 1, after the scaling by √d_model, they are as large as the positions added to them;
    PAD's is zero. Learned positions start as large as the sines they replace. Recurrent matrices are orthogonal, each
    gate separately, so that states neither vanish nor explode over many steps.

    Args:
        embedding_gain: of the token embeddings.
        sublayer_gain: factor of the last matrix of every sublayer.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            _initialize_linear(module, generator)
        elif isinstance(module, nn.GRU | nn.GRUCell | Cell):
            _initialize_gates(module, generator)
        elif isinstance(module, Embedding) and isinstance(module.positions, nn.Parameter):
            nn.init.normal_(module.positions, std=0.5**0.5, generator=generator)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=embedding_gain * module.embedding_dim**-0.5, generator=generator)
            module.weight.data[PAD_ID] = 0  # drawn too, so the other rows do not depend on it
        elif isinstance(module, RelativeBias):
            nn.init.normal_(module.weight, std=RELATIVE_BIAS_STD, generator=generator)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            _initialize_norm(module)
    for module in model.modules():
        _scale_weights(module, sublayer_gain)


def _scale_weights(module: nn.Module, sublayer_gain: float) -> None:
    if isinstance(module, MultiHeadAttention):
        module.w_o.weight.data.mul_(sublayer_gain)
    elif isinstance(module, FeedForward):
        module.narrow.weight.data.mul_(sublayer_gain)
    elif isinstance(module, LocationSensitiveAttention):
        module.w_f.weight.data.mul_(LOCATION_GAIN)


def _initialize_linear(module: nn.Linear, generator: torch.Generator) -> None:
    if module.weight is not None:  # otherwise tied to an embedding
        nn.init.xavier_uniform_(module.weight, generator=generator)
    if module.bias is not None:
        nn.init.zeros_(module.bias)


def _initialize_norm(module: nn.LayerNorm | nn.RMSNorm) -> None:
    if module.weight is not None:
        nn.init.ones_(module.weight)
    if isinstance(module, nn.LayerNorm):
        nn.init.zeros_(module.bias)


@torch.no_grad()
def _initialize_gates(module: nn.GRU | nn.GRUCell | Cell, generator: torch.Generator) -> None:
    """Draw the weights of a recurrent layer; its gates are stacked along the first dimension."""
    num_gates = module.num_gates if isinstance(module, Cell) else 3
    for name, parameter in module.named_parameters(recurse=False):
        if name.startswith("bias"):
            parameter.zero_()
            continue
        fill = nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_
        for gate in parameter.chunk(num_gates):
            fill(gate, generator=generator)
