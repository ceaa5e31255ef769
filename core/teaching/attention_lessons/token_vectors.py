"""The vectors of a source's tokens before and after the encoder, and their similarity."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.models.hooks import hooks
from core.models.transformer import Transformer
from core.tasks import Task
from core.teaching.attention_lessons.source import encode_source


@dataclass(frozen=True)
class TokenVectors:
    """The vectors of the tokens of one source; S tokens, BOS and EOS included.

    Attributes:
        tokens: S tokens.
        ids: S ids.
        stages: (S, D) float by name: "embedding" (times √D), "position" (the positional encoding), "sum" of the two,
            which enters the encoder, and "encoder", the encoder's output.
    """

    tokens: list[str]
    ids: list[int]
    stages: dict[str, torch.Tensor]

    def similarity(self, stage: str) -> torch.Tensor:
        """Return the cosine of the angle between the vectors of every pair of tokens, (S, S) float, -1 to 1."""
        directions = F.normalize(self.stages[stage], dim=-1)
        return directions @ directions.T


@torch.no_grad()
def token_vectors(model: Transformer, task: Task, text: str) -> TokenVectors:
    """Return the vectors of a typed source.

    Args:
        model: in evaluation mode, with positional encodings that are added to the embeddings.

    Raises:
        InputError: the text is not valid for the task, or too long for the model.
    """
    source = encode_source(model, task, text)
    embedding = model.tgt_embedding if model.src_embedding is None else model.src_embedding
    found: dict[str, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> None:
        found["embedding"] = x[0]

    def keep_positions(x: torch.Tensor) -> None:
        found["position"] = x

    with hooks({embedding.hook_embed.name: keep, embedding.hook_pos_embed.name: keep_positions}):
        output = model.encode(source).states[0]
    stages = {**found, "sum": found["embedding"] + found["position"], "encoder": output}
    ids = source[0].tolist()
    return TokenVectors([task.src_vocab.tokens[each] for each in ids], ids, stages)
