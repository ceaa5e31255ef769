"""Correct sequence-to-sequence models as people write them, small.

The comment at the end of a line says what the line is for; ``bench mutants`` breaks lines and looks whether the doctor
names it.
"""
# ruff: noqa: ANN001, ANN201, D102, D103

import math

import torch
import torch.nn.functional as F
from torch import nn

PAD, BOS, EOS, FIRST, SIZE = 0, 1, 2, 3, 20
D, HEADS, LENGTH = 32, 4, 40
IDS = {"pad": PAD, "bos": BOS, "eos": EOS}


def sines() -> torch.Tensor:
    """Return the paper's positional encodings, (LENGTH, D) float32."""
    angles = torch.arange(LENGTH)[:, None] * torch.exp(torch.arange(0, D, 2) * (-math.log(10_000) / D))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class TorchTransformer(nn.Module):
    """``nn.Transformer`` with sines, batch first or time first, norms before or after."""

    sines: torch.Tensor

    def __init__(self, *, batch_first: bool = True, norm_first: bool = False) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.source, self.target = nn.Embedding(SIZE, D), nn.Embedding(SIZE, D)
        self.transformer = nn.Transformer(D, HEADS, 1, 1, 64, 0.1, batch_first=batch_first, norm_first=norm_first)
        self.dropout, self.output = nn.Dropout(0.1), nn.Linear(D, SIZE)
        self.register_buffer("sines", sines())

    def embed(self, table, ids):
        return self.dropout(table(ids) * math.sqrt(D) + self.sines[: ids.shape[1]])  # position

    def forward(self, src, tgt_in):
        later = torch.ones(tgt_in.shape[1], tgt_in.shape[1], dtype=torch.bool).triu(1)  # causal
        is_pad = src == PAD  # padding
        states, queries = self.embed(self.source, src), self.embed(self.target, tgt_in)
        if not self.batch_first:
            states, queries = states.transpose(0, 1), queries.transpose(0, 1)
        states = self.transformer.encoder(states, src_key_padding_mask=is_pad)  # padding
        states = self.transformer.decoder(
            queries,
            states,
            tgt_mask=later,  # causal
            memory_key_padding_mask=is_pad,  # padding
        )
        return self.output(states if self.batch_first else states.transpose(0, 1))


class Attention(nn.Module):
    """Multi-head attention by matmul, einsum or ``scaled_dot_product_attention``; mask is True = may attend."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def split(self, x):
        return x.view(x.shape[0], -1, HEADS, D // HEADS).transpose(1, 2)  # view

    def forward(self, x, memory, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        if self.kind == "fused":
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # mask
        elif self.kind == "einsum":
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / (D // HEADS) ** 0.5  # √d_k
            weights = torch.softmax(scores.masked_fill(~mask, float("-1e20")), dim=3)  # mask, softmax
            z = torch.einsum("bhqk,bhkd->bhqd", weights, v)
        else:
            scores = (q @ k.transpose(2, 3)) / math.sqrt(D // HEADS)  # √d_k
            weights = scores.masked_fill(~mask, -1e9).softmax(dim=-1)  # mask, softmax
            z = weights @ v
        return self.o(z.transpose(1, 2).flatten(2))


class FromScratch(nn.Module):
    """An own Transformer of one layer each, with learned positions; norms after, or before as in Llama."""

    def __init__(self, kind: str, *, before: bool = False) -> None:
        super().__init__()
        self.before = before
        self.source, self.target = nn.Embedding(SIZE, D), nn.Embedding(SIZE, D)
        self.places, self.output = nn.Embedding(LENGTH, D), nn.Linear(D, SIZE)
        self.encoder, self.decoder, self.cross = Attention(kind), Attention(kind), Attention(kind)
        self.feed = nn.ModuleList(nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, D)) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(5))
        self.dropout = nn.Dropout(0.1)

    def add(self, number, x, sublayer):
        norm = self.norms[number]
        if self.before:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def forward(self, src, tgt_in):
        may_read = (src != PAD)[:, None, None, :]  # padding
        earlier = torch.ones(tgt_in.shape[1], tgt_in.shape[1]).tril().bool()[None, None]  # causal
        is_token = (tgt_in != PAD)[:, None, None, :]  # padding
        x = self.source(src) + self.places(torch.arange(src.shape[1]))  # position
        x = self.add(0, x, lambda y: self.encoder(y, y, may_read))
        memory = self.add(1, x, self.feed[0])
        y = self.target(tgt_in) + self.places(torch.arange(tgt_in.shape[1]))  # position
        y = self.add(2, y, lambda z: self.decoder(z, z, earlier & is_token))  # causal
        y = self.add(3, y, lambda z: self.cross(z, memory, may_read))  # padding
        return self.output(self.add(4, y, self.feed[1]))


class Recurrent(nn.Module):
    """A packed GRU that the decoder attends to at every step, as in Bahdanau et al. (2015), or reads once."""

    def __init__(self, *, attends: bool = True) -> None:
        super().__init__()
        self.attends = attends
        self.source, self.target = nn.Embedding(SIZE, D), nn.Embedding(SIZE, D)
        self.encoder = nn.GRU(D, D, batch_first=True)
        self.step, self.output = nn.GRUCell(2 * D, D), nn.Linear(2 * D, SIZE)
        self.mixed = nn.Linear(2 * D, D) if attends else nn.Identity()
        self.score = nn.Linear(D, 1, bias=False) if attends else nn.Identity()

    def forward(self, src, tgt_in):
        lengths = (src != PAD).sum(dim=1)  # recurrent
        packed = nn.utils.rnn.pack_padded_sequence(self.source(src), lengths, batch_first=True, enforce_sorted=False)
        states, final = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=src.shape[1])
        hidden, results = final[0], []
        for token in self.target(tgt_in).unbind(dim=1):
            context = final[0]
            if self.attends:
                both = torch.cat([hidden[:, None].expand_as(states), states], dim=-1)
                scores = self.score(self.mixed(both).tanh())[..., 0].masked_fill(src == PAD, -1e9)  # padding
                context = (scores.softmax(dim=1)[..., None] * states).sum(dim=1)  # softmax
            hidden = self.step(torch.cat([token, context], dim=-1), hidden)
            results.append(self.output(torch.cat([hidden, context], dim=-1)))
        return torch.stack(results, dim=1)


class Convolutional(nn.Module):
    """Convolutions over source and target, as in Gehring et al. (2017): PAD is zero, the decoder is padded left."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target, self.places = nn.Embedding(SIZE, D), nn.Embedding(SIZE, D), nn.Embedding(LENGTH, D)
        self.encoder, self.decoder = nn.Conv1d(D, D, 3, padding=1), nn.Conv1d(D, D, 3)
        self.output = nn.Linear(D, SIZE)

    def forward(self, src, tgt_in):
        keep = (src != PAD)[..., None]  # padding
        x = (self.source(src) + self.places(torch.arange(src.shape[1]))) * keep  # position
        memory = x + self.encoder(x.transpose(1, 2)).transpose(1, 2).relu() * keep
        y = self.target(tgt_in) + self.places(torch.arange(tgt_in.shape[1]))  # position
        y = y + self.decoder(F.pad(y.transpose(1, 2), (2, 0))).transpose(1, 2).relu()  # causal
        weights = (y @ memory.transpose(1, 2) / D**0.5).masked_fill(~keep.mT, -1e9).softmax(dim=-1)  # mask, softmax
        return self.output(y + weights @ memory)


STYLES = {
    "nn.Transformer": TorchTransformer,
    "nn.Transformer, pre-norm, time first inside": lambda: TorchTransformer(batch_first=False, norm_first=True),
    "matmul": lambda: FromScratch("matmul"),
    "einsum, pre-norm": lambda: FromScratch("einsum", before=True),
    "fused": lambda: FromScratch("fused"),
    "GRU with attention": Recurrent,
    "GRU without attention": lambda: Recurrent(attends=False),
    "convolutions": Convolutional,
}


def loss_of(model, src, tgt):
    tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]  # shifted
    return F.cross_entropy(model(src, tgt_in).flatten(0, 1), tgt_out.flatten(), ignore_index=PAD)  # loss


def optimizer_of(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)  # update


def initialized(model: nn.Module, std: float | None) -> nn.Module:
    """Draw the matrices of a model anew, with this standard deviation; None for Xavier's."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter) if std is None else nn.init.normal_(parameter, 0.0, std)
    return model


def make_batch(size: int = 16, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sources of 3 to 8 numbers (B, S) int64, and the same reversed (B, T)."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [3, 8, *torch.randint(3, 9, (size - 2,), generator=generator).tolist()]
    rows = [torch.randint(FIRST, SIZE, (length,), generator=generator).tolist() for length in lengths]
    return padded(rows), padded([row[::-1] for row in rows])


def padded(rows: list[list[int]]) -> torch.Tensor:
    """Return rows with BOS before, EOS after and PAD at the end, (B, T) int64."""
    longest = max(map(len, rows))
    return torch.tensor([[BOS, *row, EOS] + [PAD] * (longest - len(row)) for row in rows])
