"""Milestone 3: positions, embeddings and feed-forward networks, correct and wrong."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.teaching.milestones.implementations import FeedForward, findings_of, said_about


class Positions(nn.Module):
    base, start, exponent = 10_000.0, 0, 1.0

    def __init__(self, d_model, max_len=5000, dropout=0.1):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(self.start, max_len + self.start).float()[:, None]
        frequency = torch.exp(torch.arange(0, d_model, 2) * -math.log(self.base) / d_model * self.exponent)
        self.register_buffer("pe", self.table(position * frequency)[None])

    def table(self, angle):
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)

    def forward(self, x):
        return self.dropout(x + self.pe[:, : x.size(1)])


class Halves(Positions):
    def table(self, angle):
        return torch.cat([angle.sin(), angle.cos()], dim=1)


class Swapped(Positions):
    def table(self, angle):
        return torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(1)


class FromOne(Positions):
    start = 1


class OtherBase(Positions):
    base = 1000.0


class Doubled(Positions):
    exponent = 2.0


class OnlySines(Positions):
    def table(self, angle):
        return torch.stack([angle.sin(), angle.sin()], dim=-1).flatten(1)


class Multiplied(Positions):
    def forward(self, x):
        return x * (1 + self.pe[:, : x.size(1)]) + self.pe[:, : x.size(1)]


WRONG = [
    (Halves, "table of positions", "all sines come before all cosines"),
    (Swapped, "table of positions", "swapped"),
    (FromOne, "table of positions", "counted from 1"),
    (OtherBase, "table of positions", "base of the frequencies is about 1,000"),
    (Doubled, "table of positions", "doubled again"),
    (OnlySines, "table of positions", "the first at position 0, dimension 1; no known mistake"),
    (Multiplied, "addition", "not x + table"),
]


@pytest.mark.parametrize(("wrong", "check", "sentence"), WRONG, ids=[each[0].__name__ for each in WRONG])
def test_wrong_positions_are_refused_with_the_sentence_that_helps(wrong, check, sentence):
    findings = findings_of(positions=wrong)
    assert {name for name, finding in findings.items() if finding.light == "red"} == {check}
    assert sentence in findings[check].sentence


class TimeFirst(Positions):
    def __init__(self, d_model, max_len=5000):
        super().__init__(d_model, max_len)
        self.pe = self.pe.transpose(0, 1)

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(0)])


class ScalesX(Positions):
    def forward(self, x):
        return super().forward(x * math.sqrt(x.size(-1)))


def as_function(seq_len, d_model):
    return Positions(d_model, seq_len).pe


RIGHT = [
    (Positions, "returns x + table"),
    (TimeFirst, "time first"),
    (ScalesX, "x · √d_model + table"),
    (as_function, ""),
]


@pytest.mark.parametrize(("right", "convention"), RIGHT, ids=[each[0].__name__ for each in RIGHT])
def test_correct_positions_pass(right, convention):
    said, findings = said_about("positions", right)
    assert {each.light for each in findings} == {"green"}, findings
    assert convention in said


def test_learned_positions_have_no_formula_and_are_gray():
    class Learned(nn.Module):
        def __init__(self, d_model, max_len):
            super().__init__()
            self.table = nn.Parameter(torch.randn(max_len, d_model))

        def forward(self, x):
            return x + self.table[: x.size(1)]

    findings = findings_of(positions=Learned)
    assert {name: each.light for name, each in findings.items()} == {"table of positions": "gray", "addition": "green"}


@pytest.mark.parametrize(
    ("power", "light", "sentence"), [(0.5, "green", "√d_model"), (0, "red", "not scaled"), (1, "red", "by d_model;")]
)
def test_embeddings_are_multiplied_by_the_root_of_d_model(power, light, sentence):
    class Tokens(nn.Module):
        def __init__(self, vocab_size, d_model):
            super().__init__()
            self.table, self.factor = nn.Embedding(vocab_size, d_model), d_model**power

        def forward(self, ids):
            return self.table(ids) * self.factor

    finding = findings_of(embedding=Tokens)["embedding"]
    assert (finding.light, sentence in finding.sentence) == (light, True), finding


class Linear(nn.Sequential):
    def __init__(self, d_model, d_ff):
        super().__init__(nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model))


class ActivatedLast(nn.Sequential):
    def __init__(self, d_model, d_ff):
        super().__init__(nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), nn.ReLU())


class Narrow(FeedForward):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_model)


class Mixing(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.network = FeedForward(d_model, d_ff)

    def forward(self, x):
        return self.network(x - x.mean(dim=1, keepdim=True))


NETWORKS = [
    (Linear, "two layers and an activation", "one linear map"),
    (ActivatedLast, "two layers and an activation", "after the second layer"),
    (Narrow, "two layers and an activation", "The inner width is 24, though d_ff = 40"),
    (Mixing, "each position alone", "positions are mixed"),
]


@pytest.mark.parametrize(("wrong", "check", "sentence"), NETWORKS, ids=[each[0].__name__ for each in NETWORKS])
def test_wrong_feed_forward_networks_are_refused_with_the_sentence_that_helps(wrong, check, sentence):
    findings = findings_of(feed_forward=wrong)
    assert {name for name, finding in findings.items() if finding.light == "red"} == {check}
    assert sentence in findings[check].sentence


def test_a_correct_network_passes_and_another_activation_is_said():
    class Gelu(nn.Sequential):
        def __init__(self, d_model, hidden_dim):
            super().__init__(nn.Linear(d_model, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, d_model))

    class WithResidual(FeedForward):
        def __init__(self, d_in, d_hid):
            super().__init__(d_in, d_hid)

        def forward(self, x):
            return F.layer_norm(x + super().forward(x), x.shape[-1:])

    for network, activation in ((FeedForward, ""), (Gelu, "GELU"), (WithResidual, "adds its input")):
        said, findings = said_about("feed_forward", network)
        assert {each.light for each in findings} == {"green"}
        assert activation in said
