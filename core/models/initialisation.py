"""Initial weights, all drawn from one generator."""

import torch
from torch import nn


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Set every parameter anew, in place.

    Matrices are Xavier-uniform (Glorot & Bengio 2010) and biases zero. Embeddings have variance 1 / d_model,
    so that after the scaling by √d_model they are as large as the positions added to them.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5, generator=generator)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
