"""A reader's implementations: correct ones whose methods hold one choice each, for mistakes to be put in."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    """Scaled dot-product attention; subclasses replace one step."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        scores = self.scores(query, key)
        if mask is not None:
            scores = self.masked(scores, mask)
        weights = self.weights(scores)
        if mask is not None:
            weights = self.masked_after(weights, mask)
        weights = self.dropped(weights)
        return self.averaged(weights, key, value), weights

    def scores(self, query, key):
        return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))

    def masked(self, scores, mask):
        return scores.masked_fill(mask == 0, -1e9)

    def weights(self, scores):
        return scores.softmax(dim=-1)

    def masked_after(self, weights, mask):
        return weights

    def dropped(self, weights):
        return self.dropout(weights)

    def averaged(self, weights, key, value):
        return weights @ value


class MultiHead(nn.Module):
    """Multi-head attention; subclasses replace one step."""

    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__()
        self.check(d_model, num_heads)
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.attention = Attention(dropout)

    def check(self, d_model, num_heads):
        if d_model % num_heads:
            raise ValueError("d_model must be divisible by num_heads")

    def forward(self, query, key, value, mask=None):
        heads = (self.split(each) for each in self.projected(query, key, value))
        z, weights = self.attention(*heads, mask)
        return self.joined(self.merge(z)), weights

    def projected(self, query, key, value):
        return self.w_q(query), self.w_k(key), self.w_v(value)

    def split(self, x):
        return x.view(x.size(0), -1, self.num_heads, self.d_k).transpose(1, 2)

    def merge(self, z):
        return z.transpose(1, 2).contiguous().view(z.size(0), -1, self.num_heads * self.d_k)

    def joined(self, z):
        return self.w_o(z)


class FeedForward(nn.Sequential):
    """The feed-forward network."""

    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))


class EncoderLayer(nn.Module):
    """An encoder layer with norms after the additions; subclasses replace ``forward``."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attention, self.feed_forward = MultiHead(d_model, num_heads, dropout), FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def attended(self, x, mask):
        return self.self_attention(x, x, x, mask)[0]

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attended(x, mask))
        return self.norm2(x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    """A decoder layer with norms after the additions; subclasses replace one step."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        super().__init__()
        self.self_attention, self.feed_forward = MultiHead(d_model, num_heads, dropout), FeedForward(d_model, d_ff)
        self.cross_attention = MultiHead(d_model, num_heads, dropout)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        x = self.norm1(x + self.attended(x, tgt_mask))
        x = self.norm2(x + self.crossed(x, memory, src_mask))
        return self.norm3(x + self.feed_forward(x))

    def attended(self, x, mask):
        return self.self_attention(x, x, x, mask)[0]

    def crossed(self, x, memory, mask):
        return self.cross_attention(x, memory, memory, mask)[0]


def findings_of(**parts):
    """The findings of parts by check; a name that occurs twice has the later one."""
    from core.teaching.milestones.checker import MilestoneChecker
    from core.teaching.milestones.own_file import OwnFile
    from core.teaching.milestones.table import MILESTONES

    checker = MilestoneChecker(OwnFile("", parts))
    chosen = [each for each in MILESTONES if {*each.parts} & {*parts}]
    results = [part for each in chosen for part in checker.check(each).parts if part.part in parts]
    return {finding.check: finding for part in results for finding in part.findings}


def said_about(part, what):
    """What is said about the conventions of a part, and its findings."""
    from core.teaching.milestones.checker import MilestoneChecker
    from core.teaching.milestones.own_file import OwnFile
    from core.teaching.milestones.table import MILESTONES

    checker = MilestoneChecker(OwnFile("", {part: what}))
    (milestone,) = [each for each in MILESTONES if part in each.parts]
    (result,) = [each for each in checker.check(milestone).parts if each.part == part]
    return "; ".join(result.conventions), result.findings


def causal_mask(size):
    """True = may attend."""
    return torch.ones(size, size).tril().bool()
