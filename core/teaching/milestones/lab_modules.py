"""The lab's own modules, called as the document calls its own, so that the same checks examine both."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from core.config.sections import TransformerConfig
from core.config.training import TrainingConfig
from core.evaluation.accuracy import sequence_loss
from core.generation import generate
from core.models import attention, embeddings, initialization, layers, positions, transformer
from core.models.hooks import hooks, name_hook_points
from core.models.kernels import Dropout
from core.models.seq2seq import Seq2Seq
from core.teaching.milestones.own_file import OwnFile
from core.text.vocab import PAD_ID
from core.training import optimizers

Result = tuple[torch.Tensor, torch.Tensor]


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
) -> Result:
    """Attend with ``MultiHeadAttention.attend``: queries (B, H, Tq, K), keys and values (B, H, Tk, K).

    ``mask`` is bool, True = may attend. Returns the output and the weights.
    """
    module = attention.MultiHeadAttention(query.shape[1] * query.shape[-1], query.shape[1])
    return _with_weights(module, lambda: module.attend(query, (key, value), mask))


def create_causal_mask(size: int) -> torch.Tensor:
    """Return (size, size) bool, True = may attend, from ``causal_mask``, which has none for one token."""
    mask = transformer.causal_mask(size)
    return torch.ones(1, 1, dtype=torch.bool) if mask is None else mask


def create_padding_mask(sequence: torch.Tensor) -> torch.Tensor:
    """Return (B, 1, 1, S) bool, True = may attend, as ``Transformer.encode`` makes it for ids (B, S)."""
    model = build_transformer(int(sequence.max()) + 1)
    return model.encode(sequence).mask


class MultiHeadAttention(nn.Module):
    """The lab's multi-head attention, whose keys and values come from the same states; True = may attend."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = attention.MultiHeadAttention(d_model, num_heads, dropout)

    def forward(self, query: torch.Tensor, states: torch.Tensor, mask: torch.Tensor | None = None) -> Result:
        """Return the output (B, Tq, D) and the weights (B, H, Tq, Tk)."""
        keys_values = self.attention.keys_values(states)
        return _with_weights(self.attention, lambda: self.attention(query, keys_values, mask))


class PositionalEncoding(nn.Module):
    """The lab's embedding with an empty table of tokens: only the positions that it adds are left."""

    def __init__(self, d_model: int, max_len: int, dropout: float = 0.0) -> None:
        super().__init__()
        table = positions.sinusoidal_positions(max_len, d_model)
        self.embedding = embeddings.Embedding(1, d_model, Dropout(dropout), table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the positions to x (B, T, D)."""
        return x + self.embedding(torch.full(x.shape[:2], PAD_ID))


class TokenEmbedding(nn.Module):
    """The lab's embedding without positions."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.embedding = embeddings.Embedding(vocab_size, d_model, Dropout(0.0))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Embed ids (B, T) int64 to (B, T, D) float."""
        return self.embedding(ids)


class PositionwiseFeedForward(layers.FeedForward):
    """The lab's feed-forward network, built from sizes."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__(_config(d_model, 1, d_ff, activation_dropout=dropout))


class EncoderLayer(layers.EncoderLayer):
    """The lab's encoder layer, built from sizes; ``mask`` is bool, True = may attend."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__(_config(d_model, num_heads, d_ff, dropout=dropout))


class DecoderLayer(nn.Module):
    """The lab's decoder layer, which takes the encoder's output as a cache and its masks as one context."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = layers.DecoderLayer(_config(d_model, num_heads, d_ff, dropout=dropout))

    def forward(
        self,
        x: torch.Tensor,
        encoder_output: torch.Tensor,
        self_attention_mask: torch.Tensor | None = None,
        cross_attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the states (B, T, D) after the layer."""
        context = layers.DecoderContext(self_attention_mask, cross_attention_mask)
        return self.layer(x, self.layer.new_cache(encoder_output), context)[0]


def build_transformer(vocab_size: int) -> Seq2Seq:
    """Return the lab's Transformer with initial weights from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    model = transformer.Transformer(_config(32, 4, 64), vocab_size, vocab_size, generator)
    initialization.initialize(model, generator)
    return model


def compute_loss(model: Any, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
    """Return the lab's training loss of sources and targets, in nats per token that is not PAD."""
    return sequence_loss(model(src, tgt[:, :-1]), tgt[:, 1:])


def greedy_decode(model: Seq2Seq, src: torch.Tensor) -> torch.Tensor:
    """Return the ids (B, T) that greedy decoding generates."""
    return generate(model, src, max_steps=8).tokens


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer that a preset with ``training.optimizer: adam`` gets."""
    return optimizers.build_optimizer(TrainingConfig(optimizer="adam", learning_rate=2e-3), model)


LAB = OwnFile(
    "",
    {
        "attention": scaled_dot_product_attention,
        "causal_mask": create_causal_mask,
        "padding_mask": create_padding_mask,
        "heads": MultiHeadAttention,
        "positions": PositionalEncoding,
        "embedding": TokenEmbedding,
        "feed_forward": PositionwiseFeedForward,
        "encoder_layer": EncoderLayer,
        "decoder_layer": DecoderLayer,
        "model": build_transformer,
        "loss": compute_loss,
        "decode": greedy_decode,
        "optimizer": build_optimizer,
    },
)
"""The lab's modules in place of a reader's file."""


def _config(
    d_model: int, num_heads: int, d_ff: int, *, dropout: float = 0.0, activation_dropout: float = 0.0
) -> TransformerConfig:
    return TransformerConfig(
        d_model=d_model,
        num_heads=num_heads,
        d_ff=d_ff,
        num_encoder_layers=1,
        num_decoder_layers=1,
        max_seq_len=32,
        dropout=dropout,
        activation_dropout=activation_dropout,
    )


def _with_weights(module: attention.MultiHeadAttention, run: Callable[[], torch.Tensor]) -> Result:
    """Run the lab's attention and return its output and the weights at its hook point."""
    weights: list[torch.Tensor] = []

    def keep(pattern: torch.Tensor) -> None:
        weights.append(pattern)

    name_hook_points(module)
    with hooks({module.hook_pattern.name: keep}):
        return run(), weights[0]
