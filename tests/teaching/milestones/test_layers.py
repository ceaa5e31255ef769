"""Milestone 4: encoder and decoder layers with one step wrong are refused with the sentence that helps."""

import pytest
from torch import nn

from core.teaching.milestones.layers import LayerChecks
from tests.teaching.milestones.implementations import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHead,
    findings_of,
    said_about,
)


class PreNorm(EncoderLayer):
    def forward(self, x, mask=None):
        x = x + self.attended(self.norm1(x), mask)
        return x + self.feed_forward(self.norm2(x))


class NoResidualOfAttention(EncoderLayer):
    def forward(self, x, mask=None):
        x = self.norm1(self.attended(x, mask))
        return self.norm2(x + self.feed_forward(x))


class NoResidualOfFeedForward(PreNorm):
    def forward(self, x, mask=None):
        x = x + self.attended(self.norm1(x), mask)
        return self.feed_forward(self.norm2(x))


class NoNorm(EncoderLayer):
    def forward(self, x, mask=None):
        x = x + self.attended(x, mask)
        return x + self.feed_forward(x)


class OneNorm(EncoderLayer):
    def forward(self, x, mask=None):
        x = x + self.attended(x, mask)
        return self.norm2(x + self.feed_forward(x))


class OnePreNorm(EncoderLayer):
    def forward(self, x, mask=None):
        x = x + self.attended(x, mask)
        return x + self.feed_forward(self.norm2(x))


class NormAdded(EncoderLayer):
    def forward(self, x, mask=None):
        x = self.norm1(x)
        x = x + self.attended(x, mask)
        x = self.norm2(x)
        return x + self.feed_forward(x)


class PadRead(EncoderLayer):
    def attended(self, x, mask):
        return super().attended(x, None)


class MixedByNorm(EncoderLayer):
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__(d_model, num_heads, d_ff)
        self.norm2 = nn.LayerNorm([5, d_model])


class ReadsItself(DecoderLayer):
    def crossed(self, x, memory, mask):
        return self.cross_attention(x, x, x)[0]


class NotCausal(DecoderLayer):
    def attended(self, x, mask):
        return super().attended(x, None)


class SourcePadRead(DecoderLayer):
    def crossed(self, x, memory, mask):
        return super().crossed(x, memory, None)


class NoMask(DecoderLayer):
    def forward(self, x, memory):
        return super().forward(x, memory)


WRONG = [
    (NoResidualOfAttention, "residual connections", "around attention is missing"),
    (NoResidualOfFeedForward, "residual connections", "around the feed-forward network is missing"),
    (NoNorm, "norms", "without a norm"),
    (OneNorm, "norms", "1 norm is computed for 2 sublayers"),
    (OnePreNorm, "norms", "without a norm"),
    (NormAdded, "norms", "adds norm(x) and not x"),
    (PadRead, "padding", "PAD is read"),
    (MixedByNorm, "padding", "positions are mixed outside of attention"),
    (ReadsItself, "cross-attention", "Another memory changes nothing"),
    (NotCausal, "causal mask", "not passed on to the self-attention"),
    (SourcePadRead, "padding of the source", "PAD is read"),
    (NoMask, "causal mask", "the causal mask is missing"),
]


@pytest.mark.parametrize(("wrong", "check", "sentence"), WRONG, ids=[each[0].__name__ for each in WRONG])
def test_a_wrong_layer_is_refused_with_the_sentence_that_helps(wrong, check, sentence):
    part = "decoder_layer" if issubclass(wrong, DecoderLayer) else "encoder_layer"
    findings = findings_of(**{part: wrong})
    failed = {name for name, finding in findings.items() if finding.light == "red"}
    assert failed - ({"norms"} if wrong is MixedByNorm else set()) == {check}
    assert sentence in findings[check].sentence


class WithRmsNorm(EncoderLayer):
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__(d_model, num_heads, d_ff)
        self.norm1, self.norm2 = nn.RMSNorm(d_model), nn.RMSNorm(d_model)


class OfTorch(nn.Module):
    def __init__(self, d_model, nhead, dim_feedforward):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, batch_first=True)

    def forward(self, x, mask=None):
        return self.layer(x, mask)


class KeepsWeights(PreNorm):
    def attended(self, x, mask):
        output, self.last_weights = self.self_attention(x, x, x, mask)
        return output


RIGHT = [
    ("encoder_layer", KeepsWeights, "pre-norm"),
    ("encoder_layer", EncoderLayer, "post-norm"),
    ("encoder_layer", PreNorm, "pre-norm"),
    ("encoder_layer", WithRmsNorm, "post-norm"),
    ("encoder_layer", OfTorch, "mask: bool, True = hidden"),
    ("decoder_layer", DecoderLayer, "tgt_mask: bool, True = may attend"),
]


@pytest.mark.parametrize(("part", "right", "convention"), RIGHT, ids=[each[1].__name__ for each in RIGHT])
def test_correct_layers_pass_and_their_conventions_are_said(part, right, convention):
    said, findings = said_about(part, right)
    assert {each.light for each in findings} == {"green"}, findings
    assert convention in said


def test_a_layer_may_be_passed_its_parts():
    class Layer(nn.Module):
        def __init__(self, size, self_attn, feed_forward, dropout):
            super().__init__()
            self.self_attn, self.feed_forward = self_attn, feed_forward
            self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)

        def forward(self, x, mask):
            y = self.norm1(x)
            x = x + self.self_attn(y, y, y, mask)[0]
            return x + self.feed_forward(self.norm2(x))

    parts = {"heads": lambda: MultiHead(24, 3), "feed_forward": lambda: FeedForward(24, 40)}
    checks = LayerChecks(Layer, parts, is_decoder=False)
    assert {check().light for _, check in checks.all()} == {"green"}
