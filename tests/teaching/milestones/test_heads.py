"""Milestone 2: each wrong multi-head attention is refused with the sentence that helps; correct ones pass."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.teaching.milestones.implementations import Attention, MultiHead, findings_of, said_about


class SplitByView(MultiHead):
    def split(self, x):
        return x.view(x.size(0), self.num_heads, -1, self.d_k)


class MergedByView(MultiHead):
    def merge(self, z):
        return z.contiguous().view(z.size(0), -1, self.num_heads * self.d_k)


class NotProjected(MultiHead):
    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__(d_model, num_heads, dropout)
        del self.w_o

    def joined(self, z):
        return z


class AnyWidth(MultiHead):
    def check(self, d_model, num_heads):
        pass


class ValuesFromKeys(MultiHead):
    def projected(self, query, key, value):
        return self.w_q(query), self.w_k(key), self.w_v(key)


class NotMasked(MultiHead):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value)


class OneHeadDoubled(MultiHead):
    def merge(self, z):
        return super().merge(z * torch.tensor([1.0, 1.0, 2.0])[:, None, None])


class TimeFirst(MultiHead):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(*(each.transpose(0, 1) for each in (query, key, value)), mask)
        return output.transpose(0, 1), weights


class Unregistered(MultiHead):
    def joined(self, z):
        return F.linear(z, self.w_o.weight.detach(), self.w_o.bias)


WRONG = [
    (SplitByView, {"formula of the heads"}, "view(B, T, H, d_k).transpose(1, 2)"),
    (MergedByView, {"formula of the heads"}, "joined by view without transpose(1, 2)"),
    (NotProjected, {"output projection"}, "the output projection is missing"),
    (AnyWidth, {"width of a head"}, "leave out a dimension"),
    (ValuesFromKeys, {"inputs"}, "Another value changes nothing"),
    (NotMasked, {"mask"}, "the mask changes nothing"),
    (TimeFirst, {"formula of the heads"}, "the first axis is not taken for the batch"),
    (OneHeadDoubled, {"formula of the heads"}, "position 0, head 2; no known mistake explains it"),
    (Unregistered, {"gradients"}, "No gradient reaches w_o.weight"),
]


@pytest.mark.parametrize(("wrong", "checks", "sentence"), WRONG, ids=[each[0].__name__ for each in WRONG])
def test_wrong_heads_are_refused_with_the_sentence_that_helps(wrong, checks, sentence):
    findings = findings_of(heads=wrong)
    failed = {name: finding for name, finding in findings.items() if finding.light == "red"}
    assert failed.keys() == checks
    assert any(sentence in each.sentence for each in failed.values())


class Divided(Attention):
    """Scores divided by the root of the whole width, as if there were one head."""

    def scores(self, query, key):
        return query @ key.transpose(-2, -1) / math.sqrt(query.size(1) * query.size(-1))


def test_the_root_of_d_model_is_named():
    class Model(MultiHead):
        def __init__(self, d_model, num_heads):
            super().__init__(d_model, num_heads)
            self.attention = Divided()

    assert "divided by √d_model" in findings_of(heads=Model)["formula of the heads"].sentence


class OfTorch(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, query, key, value, attn_mask=None):
        return self.inner(query, key, value, attn_mask=attn_mask)


class Einsum(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        if d_model % heads:
            raise ValueError(d_model)
        shape = (d_model, heads, d_model // heads)
        self.q, self.k, self.v = (nn.Parameter(torch.randn(shape) / d_model**0.5) for _ in range(3))
        self.o = nn.Parameter(torch.randn(heads, d_model // heads, d_model) / d_model**0.5)

    def forward(self, q, k, v, mask=None):
        q, k, v = (torch.einsum("btd,dhk->bhtk", *each) for each in ((q, self.q), (k, self.k), (v, self.v)))
        scores = torch.einsum("bhqk,bhsk->bhqs", q, k) / math.sqrt(q.size(-1))
        scores = scores if mask is None else scores + mask
        return torch.einsum("bhqs,bhsk,hkd->bqd", scores.softmax(-1), v, self.o)


class OneMatrix(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        assert n_embd % n_head == 0
        self.qkv, self.out, self.n_head = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd), n_head

    def forward(self, x, mask=None):
        q, k, v = (each.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class HeadByHead(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        assert d_model % num_heads == 0
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(d_model, d_model // num_heads) for _ in range(3)) for _ in range(num_heads)
        )
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        attention = Attention().eval()
        outputs = [attention(q(query), k(key), v(value), mask)[0] for q, k, v in self.heads]
        return self.w_o(torch.cat(outputs, dim=-1))


class MaskOfThreeAxes(MultiHead):
    def forward(self, q, k, v, mask=None):
        return super().forward(q, k, v, None if mask is None else ~mask[:, None].bool())


class Causal(nn.Module):
    """Hides later tokens by itself, projects keys first, and is built from a configuration."""

    def __init__(self, config):
        super().__init__()
        self.key, self.query, self.value, self.out = (nn.Linear(config.n_embd, config.n_embd) for _ in range(4))
        self.n_head = config.n_head

    def forward(self, x):
        k, q, v = (
            layer(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2) for layer in (self.key, self.query, self.value)
        )
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class ValuesFirst(nn.Module):
    """Takes values before keys and queries, and a mask that has no default."""

    def __init__(self, embed_size, heads):
        super().__init__()
        self.attention = MultiHead(embed_size, heads)

    def forward(self, values, keys, query, mask):
        return self.attention(query, keys, values, mask)[0]


class WithDk(MultiHead):
    """Adds its input and a norm, and is passed the width of a head."""

    def __init__(self, n_head, d_model, d_k, d_v):
        super().__init__(n_head * d_k, n_head)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, q, k, v, mask=None):
        output, weights = super().forward(q, k, v, mask)
        return self.norm(q + output), weights


RIGHT = [
    (MultiHead, "(B, 1, Tq, Tk)"),
    (Causal, "hides later tokens by itself"),
    (ValuesFirst, "called with query, keys, values"),
    (WithDk, "(B, 1, Tq, Tk)"),
    (OfTorch, "wraps nn.MultiheadAttention; mask: bool, True = hidden; (Tq, Tk)"),
    (Einsum, "added to the scores"),
    (OneMatrix, "self-attention only"),
    (HeadByHead, "(B, Tq, Tk)"),
    (MaskOfThreeAxes, "mask: bool, True = hidden; (B, Tq, Tk)"),
]


@pytest.mark.parametrize(("right", "convention"), RIGHT, ids=[each[0].__name__ for each in RIGHT])
def test_correct_heads_pass_and_their_conventions_are_said(right, convention):
    said, findings = said_about("heads", right)
    skipped = {Causal: {"mask", "width of a head"}, WithDk: {"width of a head"}}.get(right, set())
    assert {each.check for each in findings if each.light == "gray"} == skipped
    assert [each for each in findings if each.light not in ("green", "gray")] == []
    assert convention in said


def test_a_mask_that_both_parts_of_a_file_read_differently_is_a_warning():
    finding = findings_of(attention=Attention, heads=MaskOfThreeAxes)["masks of both"]
    assert finding.light == "amber"
    assert "one mask cannot serve both" in finding.sentence
    assert findings_of(attention=Attention, heads=MultiHead)["masks of both"].light == "green"
