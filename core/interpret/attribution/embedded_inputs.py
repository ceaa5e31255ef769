"""The embedded tokens that a model reads, source and decoder input side by side, and runs on changed ones."""

from dataclasses import dataclass

import torch

from core.interpret.attribution.prediction import Prediction
from core.models import Seq2Seq
from core.models.decoder_only import DecoderOnly
from core.models.embeddings import Embedding
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.hooks import hooks
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.text.vocab import PAD_ID


@dataclass(frozen=True, eq=False)
class EmbeddedInputs:
    """A prediction's input as vectors. Letters: N rows of a batch, S + T source and decoder tokens, E embedding width.

    An encoder-only model reads no decoder tokens, so its T is 0 here.

    Attributes:
        points: names of the hook points of the embedded source and, if there are decoder tokens, of these.
        tokens: (1, S + T, E) float, the tokens' embeddings, scaled, before positions are added.
        baseline: (1, S + T, E) float, PAD's embedding, which is zero in models that this version trains.
    """

    model: Seq2Seq
    prediction: Prediction
    points: tuple[str, ...]
    tokens: torch.Tensor
    baseline: torch.Tensor

    def score(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the explained score, (N,) float, of inputs with these embeddings (N, S + T, E)."""
        src = self.prediction.src.expand(len(tokens), -1)
        tgt_in = self.prediction.tgt_in.expand(len(tokens), -1)
        source, prefix = tokens.tensor_split([src.shape[1]], dim=1)
        with hooks({self.points[0]: lambda x: source}):
            memory = self.model.encode(src)
        with hooks({point: lambda x: prefix for point in self.points[1:]}):
            return self.prediction.score(self.model.decode(tgt_in, memory).logits[:, -1])

    def by_side(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split one number per token, (S + T,), into those of the source and those of the prefix."""
        source, prefix = values.tensor_split([self.prediction.src.shape[1]])
        return source, prefix


@torch.no_grad()
def embedded_inputs(model: Seq2Seq, prediction: Prediction) -> EmbeddedInputs:
    """Return the embeddings of the model's input for a prediction.

    Raises:
        InputError: the embeddings of the model's family are not known here.
    """
    sides: list[tuple[Embedding, torch.Tensor]]
    if isinstance(model, EncoderOnly):
        sides = [(model.src_embedding, prediction.src)]
    elif isinstance(model, Transformer | DecoderOnly | GRUSeq2Seq):
        source = model.tgt_embedding if model.src_embedding is None else model.src_embedding
        sides = [(source, prediction.src), (model.tgt_embedding, prediction.tgt_in)]
    else:
        raise InputError(f"input attribution is not available for {type(model).__name__}")
    tokens = torch.cat([_embed(embedding, ids) for embedding, ids in sides], dim=1)
    baseline = torch.cat([_embed(embedding, torch.full_like(ids, PAD_ID)) for embedding, ids in sides], dim=1)
    points = tuple(embedding.hook_embed.name for embedding, _ in sides)
    return EmbeddedInputs(model, prediction, points, tokens, baseline)


def _embed(embedding: Embedding, ids: torch.Tensor) -> torch.Tensor:
    return embedding.tokens(ids) * embedding.scale
