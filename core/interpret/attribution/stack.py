"""The residual stream of a model and its path to the logits, for logit lens and direct logit attribution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from core.interpret.attribution.prediction import Prediction
from core.models import Seq2Seq
from core.models.decoder_only import DecoderOnly
from core.models.embeddings import Embedding, Output
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.hooks import Hook, HookPoint, hooks
from core.models.layers import DecoderLayer, EncoderLayer
from core.models.transformer import Transformer
from core.storage.errors import InputError


@dataclass(frozen=True, eq=False)
class ResidualStack:
    """The residual stream from the embedding to the logits: of the decoder, or of an encoder-only model's encoder.

    Attributes:
        embedding: of the decoder's input; of the source in an encoder-only model.
        layers: in order.
        norm: the final norm, or an identity after post-norm layers.
        output: the unembedding.
    """

    model: Seq2Seq
    embedding: Embedding
    layers: tuple[EncoderLayer | DecoderLayer, ...]
    norm: nn.Module
    output: Output

    def unembed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V) of a residual stream (B, T, D)."""
        return self.output(self.norm(x), self.embedding)

    def logits(self, prediction: Prediction, by_name: Mapping[str, Hook]) -> torch.Tensor:
        """Return the logits (V,) of a prediction, with hooks in the stack's own pass.

        Hooks are limited to this pass because the layers of a decoder-only model also read the source, in ``encode``.
        """
        of_encoder, of_decoder = ({}, by_name) if prediction.position is None else (by_name, {})
        with hooks(of_encoder):
            memory = self.model.encode(prediction.src)
        with hooks(of_decoder):
            return self.model.decode(prediction.tgt_in, memory).logits[0, -1]


def residual_stack(model: Seq2Seq, *, method: str) -> ResidualStack:
    """Return the stack with the residual stream that becomes a model's logits.

    Raises:
        InputError: the model has no residual stream; the message names the method, which does not apply.
    """
    if isinstance(model, Transformer):
        embedding, layers, norm = model.tgt_embedding, model.decoder_layers, model.decoder_norm
    elif isinstance(model, DecoderOnly):
        embedding, layers, norm = model.tgt_embedding, model.layers, model.norm
    elif isinstance(model, EncoderOnly):
        embedding, layers, norm = model.src_embedding, model.encoder_layers, model.encoder_norm
    else:
        kind = "a recurrent model" if isinstance(model, GRUSeq2Seq) else type(model).__name__
        raise InputError(f"{method} needs a residual stream; {kind} has none, so it cannot be used")
    of_stack = tuple(cast(EncoderLayer | DecoderLayer, layer) for layer in layers)
    return ResidualStack(model, embedding, of_stack, norm, model.output)


def residual_points(layers: Sequence[EncoderLayer | DecoderLayer]) -> list[tuple[str, int, HookPoint]]:
    """Return the points of a residual stream, the embedding and after each sublayer: (name, layer, hook point)."""
    points = [("embedding", 0, layers[0].hook_resid_pre)]
    for number, layer in enumerate(layers, start=1):
        points.append((f"{number} self-attention", number, layer.hook_resid_mid))
        if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
            points.append((f"{number} cross-attention", number, layer.hook_resid_cross))
        points.append((f"{number} feed-forward", number, layer.hook_resid_post))
    return points
