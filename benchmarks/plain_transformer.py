"""The rival that benchmarks race against: the same model from ``nn.Transformer``'s parts, as tutorials put it together.

It is used nowhere else; the models of the project are written from tensor operations.
"""

import math

import torch
from torch import nn

from core.config import ConfigError, Preset
from core.config.sections import TransformerConfig
from core.models.positions import sinusoidal_positions
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID


def rival_of(preset: Preset) -> "PlainTransformer":
    """Return the rival of a preset's model, its weights drawn from PyTorch's global generator.

    Raises:
        ConfigError: there is none.
    """
    if not isinstance(preset.model, TransformerConfig):
        raise ConfigError([("model", f"preset={preset.name!r} has no rival of nn.Transformer's parts")])
    task = build_task(preset.task)
    return PlainTransformer(preset.model, src_vocab_size=len(task.src_vocab), tgt_vocab_size=len(task.tgt_vocab))


class PlainTransformer(nn.Module):
    """An encoder-decoder of a preset's sizes; all else is the default: post-norm, ReLU, sines, no weights shared.

    Args:
        config: its sizes and its dropout.
    """

    def __init__(self, config: TransformerConfig, *, src_vocab_size: int, tgt_vocab_size: int) -> None:
        super().__init__()
        width = config.d_model
        layer = {"d_model": width, "nhead": config.num_heads, "dim_feedforward": config.d_ff}
        layer |= {"dropout": config.dropout, "batch_first": True}
        self.scale, self.max_seq_len = math.sqrt(width), config.max_seq_len
        self.src_embedding, self.tgt_embedding = (
            nn.Embedding(vocab_size, width) for vocab_size in (src_vocab_size, tgt_vocab_size)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("positions", sinusoidal_positions(config.max_seq_len, width), persistent=False)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**layer), config.num_encoder_layers, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), config.num_decoder_layers)
        self.output = nn.Linear(width, tgt_vocab_size)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)  # as in nn.Transformer

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Score what follows each target token: src (B, S), tgt_in (B, T) int64 to (B, T, V) logits."""
        is_pad = src == PAD_ID
        return self._decode(tgt_in, self._encode(src, is_pad), is_pad)

    @torch.no_grad()
    def greedy(self, src: torch.Tensor, *, max_steps: int) -> torch.Tensor:
        """Write answers, (B, T) int64 with PAD behind each one's EOS, at most ``max_steps`` tokens; without a cache."""
        written = torch.full((len(src), 1), BOS_ID)
        ended = torch.zeros(len(src), 1, dtype=torch.bool)
        is_pad = src == PAD_ID
        memory = self._encode(src, is_pad)
        for _ in range(max_steps):
            token = self._decode(written, memory, is_pad)[:, -1:].argmax(dim=-1).masked_fill(ended, PAD_ID)
            written, ended = torch.cat([written, token], dim=1), ended | (token == EOS_ID)
        return written[:, 1:]

    def _encode(self, src: torch.Tensor, is_pad: torch.Tensor) -> torch.Tensor:
        return self.encoder(self._embedded(self.src_embedding, src), src_key_padding_mask=is_pad)

    def _decode(self, tgt_in: torch.Tensor, memory: torch.Tensor, is_pad: torch.Tensor) -> torch.Tensor:
        length = tgt_in.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=tgt_in.device).triu(1)  # True = may not attend
        states = self.decoder(
            self._embedded(self.tgt_embedding, tgt_in),
            memory,
            tgt_mask=causal,
            tgt_is_causal=True,
            memory_key_padding_mask=is_pad,
        )
        return self.output(states)

    def _embedded(self, embedding: nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        return self.dropout(embedding(ids) * self.scale + self.positions[: ids.shape[1]])
