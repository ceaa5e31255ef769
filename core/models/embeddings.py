"""Tokens to vectors, and vectors to scores of tokens (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from core.config.sections import BlocksConfig
from core.models.hooks import HookPoint
from core.models.kernels import Dropout
from core.models.positions import sinusoidal_positions
from core.models.shape_checks import check_token_ids, check_width
from core.text.vocab import PAD_ID


class Embedding(nn.Module):
    """Turn token ids into vectors: embedding × √d_model, plus positional encodings if any, then dropout.

    The embedding of PAD is zero and is not trained. Presets can set ``scale`` to 1 and ``norm`` to a layer norm.

    Args:
        dropout: applied to the sum.
        positions: (P, D) float, one row per position; learned if it is a parameter; None adds none.
    """

    def __init__(self, vocab_size: int, d_model: int, dropout: Dropout, positions: torch.Tensor | None = None) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model, padding_idx=PAD_ID)
        self.scale = math.sqrt(d_model)
        if isinstance(positions, nn.Parameter):
            self.positions = positions
        else:
            self.register_buffer("positions", positions, persistent=False)
        self.norm: nn.Module = nn.Identity()
        self.dropout = dropout
        self.hook_embed, self.hook_pos_embed = HookPoint(), HookPoint()

    def forward(self, ids: torch.Tensor, start: int | torch.Tensor = 0) -> torch.Tensor:
        """Embed ids (B, T) int64 to (B, T, D) float.

        Args:
            start: position of the first id; (B,) int64 if it differs between sequences.
        """
        check_token_ids("ids", ids, len(self.tokens.weight), None if self.positions is None else len(self.positions))
        embedded = self.hook_embed(self.tokens(ids) * self.scale)
        if self.positions is not None:
            if isinstance(start, torch.Tensor):
                positions = self.positions[start[:, None] + torch.arange(ids.shape[1], device=ids.device)]
            else:
                positions = self.positions[start : start + ids.shape[1]]
            embedded = embedded + self.hook_pos_embed(positions)
        return self.dropout(self.norm(embedded))

    def output_weight(self) -> torch.Tensor:
        """Return the table (V, D) for a tied output layer; PAD's row gets no gradient from it."""
        weight = self.tokens.weight
        if not torch.is_grad_enabled():
            return weight
        return torch.cat([weight[: PAD_ID + 1].detach(), weight[PAD_ID + 1 :]])  # PAD is the first row


def build_embedding(config: BlocksConfig, generator: torch.Generator | None, vocab_size: int, rows: int) -> Embedding:
    """Return the embedding of a vocabulary; if positions are added to it, their table has ``rows`` rows."""
    block = config.build_block("embedding", generator, vocab_size)
    if block is not None:  # a plugin's, to which the settings below do not apply
        return block
    positions: torch.Tensor | None = None
    if config.positions == "learned":
        positions = nn.Parameter(torch.empty(rows, config.d_model))
    elif config.positions.startswith("sinusoidal"):
        kind = config.positions.removeprefix("sinusoidal-")
        positions = sinusoidal_positions(rows, config.d_model, in_halves=kind == "halves", is_fairseq=kind == "fairseq")
    embedding = Embedding(vocab_size, config.d_model, Dropout(config.dropout, generator), positions)
    if not config.scale_embeddings:
        embedding.scale = 1.0
    if config.embedding_norm:
        embedding.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps or 1e-5)
    return embedding


def build_embeddings(
    config: BlocksConfig, vocab_sizes: tuple[int, int], num_positions: int, generator: torch.Generator | None
) -> tuple[Embedding | None, Embedding]:
    """Return the source embedding, or None if it is the target's, and the target embedding.

    Args:
        vocab_sizes: of source and target.
        num_positions: rows of the tables of positions.

    Raises:
        ValueError: both are to be shared, but the two vocabularies differ in size.
    """
    source, target = vocab_sizes
    if config.tie_embeddings == "all" and source != target:
        raise ValueError(f"tie_embeddings='all' needs one vocabulary, not {source} and {target} tokens")
    tgt = build_embedding(config, generator, target, num_positions)
    return None if config.tie_embeddings == "all" else build_embedding(config, generator, source, num_positions), tgt


class Output(nn.Linear):
    """Score every token: x Wᵀ + b, with its own W or the target embedding's (Press & Wolf 2017).

    PAD's row of the target embedding is zero, so the score of PAD is then its bias alone, which training lowers.
    """

    def __init__(self, d_model: int, vocab_size: int, *, is_tied: bool = False) -> None:
        super().__init__(d_model, vocab_size)
        if is_tied:
            self.register_parameter("weight", None)
        self.hook_logits = HookPoint()

    def forward(self, input: torch.Tensor, embedding: Embedding | None = None) -> torch.Tensor:
        """Map states (B, T, D) to logits (B, T, V); a tied output takes the weights of ``embedding``."""
        check_width("input", input, self.in_features)
        weight = embedding.output_weight() if embedding is not None and self.weight is None else self.weight
        return self.hook_logits(F.linear(input, weight, self.bias))


def build_output(config: BlocksConfig, generator: torch.Generator | None, vocab_size: int) -> Output:
    """Return a new output layer: the preset's block, or by default a linear map, optionally with tied weights."""
    block = config.build_block("output", generator, vocab_size)
    return Output(config.d_model, vocab_size, is_tied=config.tie_embeddings != "none") if block is None else block
