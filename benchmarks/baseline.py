"""The baseline of the benchmarks: the same model built from the layers of ``torch.nn``, as tutorials do.

The project's own models are written from tensor operations and never use these layers.
"""

import math

import torch
from torch import nn

from core.config import ConfigError, Preset
from core.config.sections import TransformerConfig
from core.models.positions import sinusoidal_positions
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def build_baseline(preset: Preset) -> "BaselineTransformer":
    """Build the baseline for a preset's model; its weights are drawn from PyTorch's global generator.

    Raises:
        ConfigError: the preset's model is not an encoder-decoder Transformer.
    """
    if not isinstance(preset.model, TransformerConfig):
        raise ConfigError([("model", f"preset={preset.name!r} has no baseline: it is no encoder-decoder Transformer")])
    task = build_task(preset.task)
    return BaselineTransformer(preset.model, src_vocab_size=len(task.src_vocab), tgt_vocab_size=len(task.tgt_vocab))


class BaselineTransformer(nn.Module):
    """An encoder-decoder from ``nn.TransformerEncoder`` and ``nn.TransformerDecoder``.

    Sizes and dropout are the preset's. Everything else is the default: post-norm, ReLU, sinusoidal positions, untied
    embeddings.

    Args:
        config: the preset's model section.
    """

    positions: torch.Tensor

    def __init__(self, config: TransformerConfig, *, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        d_model = config.d_model
        self.scale, self.max_seq_len = math.sqrt(d_model), config.max_seq_len
        self.src_embedding, self.tgt_embedding = (
            nn.Embedding(vocab_size, d_model) for vocab_size in (src_vocab_size, tgt_vocab_size)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("positions", sinusoidal_positions(config.max_seq_len, d_model), persistent=False)
        sizes = (d_model, config.num_heads, config.d_ff, config.dropout)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, batch_first=True), config.num_encoder_layers, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*sizes, batch_first=True), config.num_decoder_layers
        )
        self.output = nn.Linear(d_model, tgt_vocab_size)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)  # as in nn.Transformer

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Compute logits (B, T, V) from src (B, S) and tgt_in (B, T), both int64."""
        is_pad = src == PAD_ID
        return self._decode(tgt_in, self._encode(src, is_pad), is_pad)

    @torch.no_grad()
    def greedy(self, src: torch.Tensor, *, max_steps: int) -> torch.Tensor:
        """Decode greedily, without a cache: (B, T) int64 with PAD after EOS, T at most ``max_steps``."""
        tokens = torch.full((len(src), 1), BOS_ID)
        ended = torch.zeros(len(src), 1, dtype=torch.bool)
        is_pad = src == PAD_ID
        memory = self._encode(src, is_pad)
        for _ in range(max_steps):
            token = self._decode(tokens, memory, is_pad)[:, -1:].argmax(dim=-1).masked_fill(ended, PAD_ID)
            tokens, ended = torch.cat([tokens, token], dim=1), ended | (token == EOS_ID)
        return tokens[:, 1:]

    def _encode(self, src: torch.Tensor, is_pad: torch.Tensor) -> torch.Tensor:
        return self.encoder(self._embed(self.src_embedding, src), src_key_padding_mask=is_pad)

    def _decode(self, tgt_in: torch.Tensor, memory: torch.Tensor, is_pad: torch.Tensor) -> torch.Tensor:
        length = tgt_in.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=tgt_in.device).triu(1)  # True = may not attend
        states = self.decoder(
            self._embed(self.tgt_embedding, tgt_in),
            memory,
            tgt_mask=causal,
            tgt_is_causal=True,
            memory_key_padding_mask=is_pad,
        )
        return self.output(states)

    def _embed(self, embedding: nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        return self.dropout(embedding(ids) * self.scale + self.positions[: ids.shape[1]])
