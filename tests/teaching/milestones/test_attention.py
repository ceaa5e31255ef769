"""Milestone 1: each wrong attention is refused with the sentence that helps; correct ones pass in any convention."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.teaching.milestones.implementations import Attention, causal_mask, findings_of, said_about


class NoScale(Attention):
    def scores(self, query, key):
        return query @ key.transpose(-2, -1)


class DividedByWidth(Attention):
    def scores(self, query, key):
        return query @ key.transpose(-2, -1) / query.size(-1)


class Multiplied(Attention):
    def scores(self, query, key):
        return query @ key.transpose(-2, -1) * math.sqrt(query.size(-1))


class RootOfKeys(Attention):
    def scores(self, query, key):
        return query @ key.transpose(-2, -1) / math.sqrt(key.size(-2))


class OverQueries(Attention):
    def weights(self, scores):
        return scores.softmax(dim=-2)


class OverHeads(Attention):
    def weights(self, scores):
        return scores.softmax(dim=1)


class NoSoftmax(Attention):
    def weights(self, scores):
        return scores


class Overflowing(Attention):
    def weights(self, scores):
        return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


class MaskedAfter(Attention):
    def masked(self, scores, mask):
        return scores

    def masked_after(self, weights, mask):
        return weights * mask


class MaskIgnored(Attention):
    def masked(self, scores, mask):
        return scores


class MaskedByZero(Attention):
    def masked(self, scores, mask):
        return scores * mask


class SmallFill(Attention):
    def masked(self, scores, mask):
        return scores.masked_fill(mask == 0, -1e2)


class Inverted(Attention):
    """The mask is True where positions are to be masked."""


class AlwaysDropping(Attention):
    def dropped(self, weights):
        return F.dropout(weights, 0.1)


class KeysAveraged(Attention):
    def averaged(self, weights, key, value):
        return weights @ key


class Detached(Attention):
    def dropped(self, weights):
        return weights.detach()


class InPlace(Attention):
    def scores(self, query, key):
        query /= math.sqrt(query.size(-1))
        return query @ key.transpose(-2, -1)


class ScoresReturned(Attention):
    def forward(self, query, key, value, mask=None):
        scores = self.scores(query, key)
        return super().forward(query, key, value, mask)[0], scores


class Doubled(Attention):
    """The weights of one query of one head are doubled, which no known mistake does."""

    def dropped(self, weights):
        factor = torch.ones_like(weights)
        factor[1, 2, 3] = 2
        return weights * factor


class KeysTurned(Attention):
    def scores(self, query, key):
        return query @ key / math.sqrt(query.size(-1))


WRONG = [
    (NoScale, "formula", "divide them by √d_k before the softmax"),
    (DividedByWidth, "formula", "divided by d_k; divide them by its square root"),
    (Multiplied, "formula", "multiplied by √d_k"),
    (RootOfKeys, "formula", "√(number of keys)"),
    (OverQueries, "formula", "runs over the queries"),
    (OverHeads, "formula", "axis −3, the heads or the batch"),
    (NoSoftmax, "formula", "there is no softmax"),
    (KeysAveraged, "formula", "multiplied by the keys"),
    (Overflowing, "large scores", "subtract the largest score of each row"),
    (MaskedAfter, "mask", "applied after the softmax"),
    (MaskIgnored, "mask", "the mask changes nothing"),
    (MaskedByZero, "mask", "exp(0) is 1"),
    (SmallFill, "mask value", "filled with about -100"),
    (Inverted, "mask", "inverted"),
    (AlwaysDropping, "evaluation mode", "dropout acts; use nn.Dropout"),
    (Detached, "gradients", "No gradient reaches the queries and the keys"),
    (InPlace, "inputs", "changes its queries"),
    (ScoresReturned, "returned weights", "The scores are returned as weights"),
    (Doubled, "formula", "the first at batch 1, head 2, query 3; no known mistake explains it"),
    (KeysTurned, "call", "RuntimeError"),
]


@pytest.mark.parametrize(("wrong", "check", "sentence"), WRONG, ids=[each[0].__name__ for each in WRONG])
def test_a_wrong_attention_is_refused_with_the_sentence_that_helps(wrong, check, sentence):
    findings = findings_of(attention=wrong)
    failed = {name for name, finding in findings.items() if finding.light == "red"}
    assert failed == {check}
    assert sentence in findings[check].sentence


def test_two_mistakes_are_both_named():
    class Both(OverQueries, NoScale):
        pass

    sentence = findings_of(attention=Both)["formula"].sentence
    assert "runs over the queries" in sentence
    assert "not scaled" in sentence


def may_attend(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def hidden(query, key, value, attn_mask=None):
    """True in the mask hides a key."""
    scores = torch.einsum("btd,bsd->bts", query, key) / key.shape[-1] ** 0.5
    scores = scores if attn_mask is None else scores.masked_fill(attn_mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("bts,bsd->btd", weights, value), weights


def added(q, k, v, mask=None):
    scores = q.mul(q.size(-1) ** -0.5).matmul(k.mT)
    weights = F.softmax(scores if mask is None else scores + mask, dim=-1)
    return {"weights": weights, "output": weights @ v}


def ones_hidden(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    if mask is not None:
        scores += mask * -1e9
    return scores.softmax(-1) @ v


def fused(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Tempered(Attention):
    def __init__(self, temperature, attn_dropout=0.1):
        super().__init__(attn_dropout)
        self.temperature = temperature

    def scores(self, query, key):
        return torch.matmul(query / self.temperature, key.transpose(-2, -1))


RIGHT = [
    (may_attend, "returns the output; mask: bool, True = may attend"),
    (hidden, "takes (B, T, d_k), returns output and weights; mask: bool, True = hidden; (B, Tq, Tk)"),
    (added, "added to the scores"),
    (ones_hidden, "mask: bool, True = hidden"),
    (fused, "mask: bool, True = may attend"),
    (Attention, "gets an average of what is hidden"),
    (Tempered, "output and weights"),
]


@pytest.mark.parametrize(("right", "convention"), RIGHT, ids=[each[0].__name__ for each in RIGHT])
def test_a_correct_attention_passes_and_its_conventions_are_said(right, convention):
    said, findings = said_about("attention", right)
    assert [each for each in findings if each.light in ("red", "amber")] == []
    assert sum(each.light == "green" for each in findings) >= 8
    assert convention in said


@pytest.mark.parametrize(
    ("docstring", "light"),
    [
        ("True = may attend", "green"),
        ("The mask is True for real tokens, False for padding.", "green"),
        ("True means that the position is not masked.", "green"),
        ("Where it is True, attention is prevented, which hides the future.", "red"),
        ("mask: True = positions to mask", "red"),
    ],
)
def test_the_docstring_must_say_what_the_mask_does(docstring, light):
    class Documented(Attention):
        __doc__ = docstring

    assert findings_of(attention=Documented)["mask"].light == light


def test_nan_in_a_row_without_keys_is_said():
    assert "without any key gets NaN" in said_about("attention", may_attend)[0]


def test_what_is_not_written_yet_is_gray():
    def attention(q, k, v, mask=None):
        pass

    class Heads(nn.Module):
        def __init__(self, d_model, num_heads):
            pass

    class Positions(nn.Module):
        def __init__(self, d_model):
            raise NotImplementedError

    class SelfAttention(nn.Module):
        def __init__(self, dim, heads=8):
            super().__init__()

        def forward(self, x, mask=None):
            return x

    (finding,) = findings_of(attention=SelfAttention).values()
    assert (finding.light, "it takes x, and no queries" in finding.sentence) == ("gray", True)
    for part in ({"attention": attention}, {"heads": Heads}, {"positions": Positions}):
        (finding,) = findings_of(**part).values()
        assert finding.light == "gray"
        assert "may not be written yet" in finding.sentence or "NotImplementedError" in finding.sentence


def test_equal_lengths_only_is_a_warning():
    def attention(query, key, value, mask=None):
        assert query.shape == key.shape
        return may_attend(query, key, value, mask)

    findings = findings_of(attention=attention)
    assert {name for name, each in findings.items() if each.light != "green"} == {"different lengths"}
    assert findings["different lengths"].light == "amber"


CAUSAL = [
    (causal_mask, "green", "sees each token and what came before"),
    (lambda size: ~causal_mask(size), "red", "polarity is inverted"),
    (lambda size: causal_mask(size).tril(-1), "red", "hides each token from itself"),
    (lambda size: torch.ones(size, size).tril(1).bool(), "red", "see the next one"),
    (lambda size: causal_mask(size).T, "red", "transposed"),
    (lambda size: torch.ones(size), "red", "a row and a column for each token"),
]


@pytest.mark.parametrize(("make", "light", "sentence"), CAUSAL)
def test_a_causal_mask_is_read_as_the_attention_of_the_file_reads_it(make, light, sentence):
    finding = findings_of(attention=Attention, causal_mask=make)["causal mask"]
    assert (finding.light, sentence in finding.sentence) == (light, True), finding


def test_a_causal_mask_alone_passes_in_either_polarity():
    for make in (causal_mask, lambda size: ~causal_mask(size), lambda n: torch.full((n, n), -torch.inf).triu(1)):
        assert findings_of(causal_mask=make)["causal mask"].light == "green"


def test_the_attention_of_the_file_decides_what_a_mask_means():
    def minus_infinity(size):
        return torch.full((size, size), -torch.inf).triu(1)

    findings = findings_of(attention=added, causal_mask=causal_mask)
    assert findings["causal mask"].light == "red"  # True and False are added as 1 and 0
    assert "hides nothing" in findings["causal mask"].sentence
    for attention in (added, fused):  # PyTorch's takes both kinds
        assert findings_of(attention=attention, causal_mask=minus_infinity)["causal mask"].light == "green"


PADDING = [
    (lambda seq: (seq != 0)[:, None, None], "green", "hides PAD"),
    (lambda seq: seq == 0, "red", "polarity is inverted"),
    (lambda seq, pad_idx: seq != 2, "red", "does not mark PAD"),
]


@pytest.mark.parametrize(("make", "light", "sentence"), PADDING)
def test_a_padding_mask_is_read_as_the_attention_of_the_file_reads_it(make, light, sentence):
    finding = findings_of(attention=Attention, padding_mask=make)["padding mask"]
    assert (finding.light, sentence in finding.sentence) == (light, True), finding
