"""A plain PyTorch sequence-to-sequence Transformer in one file, as tutorials write it: it reverses numbers."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
NUM_TOKENS = 20
D_MODEL, NUM_HEADS, NUM_LAYERS, D_FF, DROPOUT = 32, 4, 1, 64, 0.1
MAX_LENGTH = 32


class PlainTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(NUM_TOKENS, D_MODEL)
        self.dropout = nn.Dropout(DROPOUT)
        self.register_buffer("positions", sinusoids())
        encoder_layer = nn.TransformerEncoderLayer(D_MODEL, NUM_HEADS, D_FF, DROPOUT, batch_first=True)
        decoder_layer = nn.TransformerDecoderLayer(D_MODEL, NUM_HEADS, D_FF, DROPOUT, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder_layer, NUM_LAYERS)
        self.decoder = nn.TransformerDecoder(decoder_layer, NUM_LAYERS)
        self.output = nn.Linear(D_MODEL, NUM_TOKENS)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def embed(self, ids):
        x = self.embedding(ids) * math.sqrt(D_MODEL)
        x = x + self.positions[: ids.shape[1]]
        return self.dropout(x)

    def forward(self, src, tgt_in):
        is_pad = src == PAD
        later = torch.ones(tgt_in.shape[1], tgt_in.shape[1], dtype=torch.bool, device=src.device).triu(1)
        memory = self.encoder(self.embed(src), src_key_padding_mask=is_pad)
        states = self.decoder(self.embed(tgt_in), memory, tgt_mask=later, memory_key_padding_mask=is_pad)
        return self.output(states)


def sinusoids():
    positions = torch.arange(MAX_LENGTH)[:, None]
    angles = positions * torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10_000) / D_MODEL))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def training_loss(model, src, tgt):
    tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]
    logits = model(src, tgt_in)
    return F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD)


def make_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def make_batch(size=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sources, targets = [], []
    for length in torch.randint(3, 9, (size,), generator=generator).tolist():
        numbers = torch.randint(FIRST, NUM_TOKENS, (length,), generator=generator).tolist()
        sources.append([BOS, *numbers, EOS])
        targets.append([BOS, *numbers[::-1], EOS])
    return padded(sources), padded(targets)


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
