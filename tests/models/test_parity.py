"""The whole Transformer equals one around ``torch.nn.Transformer`` with the same weights: logits, every gradient."""

import math
import re
from collections import defaultdict

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from core.evaluation.accuracy import sequence_loss
from core.models.embeddings import sinusoidal_positions
from core.models.transformer import Transformer
from core.text.vocab import PAD_ID
from tests.support.scripted_models import make_model, random_sequences

SRC_V, TGT_V, D, H, LONGEST = 11, 13, 16, 4, 12
SIZES = {
    "src_vocab_size": SRC_V,
    "tgt_vocab_size": TGT_V,
    "d_model": D,
    "num_heads": H,
    "num_encoder_layers": 3,
    "num_decoder_layers": 2,
    "d_ff": 32,
    "max_seq_len": LONGEST,
}
CASES = [
    {"norm": "post"},
    {"norm": "pre"},
    {"norm": "post", "activation": "gelu", "positions": "learned", "tie_embeddings": "output"},
    {"norm": "pre", "activation": "gelu", "positions": "none", "tie_embeddings": "all", "src_vocab_size": TGT_V},
]
WITHIN = {torch.float64: 1e-12, torch.float32: 1e-5}

# Parts of the names of weights, ours and those of nn.Transformer's.
NAMES = {
    "encoder_layers": "transformer.encoder.layers",
    "decoder_layers": "transformer.decoder.layers",
    "encoder_norm": "transformer.encoder.norm",
    "decoder_norm": "transformer.decoder.norm",
    "norm_attention": "norm1",
    "norm_self": "norm1",
    "norm_cross": "norm2",
    "self_attention": "self_attn",
    "cross_attention": "multihead_attn",
    "w_o": "out_proj",
    "feed_forward.widen": "linear1",
    "feed_forward.narrow": "linear2",
}


class Embedded(nn.Module):
    """Token embeddings, scaled by √d_model, plus positions."""

    def __init__(self, vocab_size: int, positions: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, D)
        if positions == "learned":
            self.positions = nn.Parameter(torch.zeros(LONGEST, D))
        else:
            self.positions = sinusoidal_positions(LONGEST, D) * (positions == "sinusoidal")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) * math.sqrt(D) + self.positions[: ids.shape[1]]


class Reference(nn.Module):
    """A whole model around ``nn.Transformer``.

    Like ours, and the paper's, it has a norm behind each stack only if the layers have theirs before the sublayers.
    """

    def __init__(
        self,
        *,
        norm: str,
        activation: str = "relu",
        positions: str = "sinusoidal",
        tie_embeddings: str = "none",
        src_vocab_size: int = SRC_V,
    ) -> None:
        super().__init__()
        self.tgt_embedding = Embedded(TGT_V, positions)
        self.src_embedding = self.tgt_embedding if tie_embeddings == "all" else Embedded(src_vocab_size, positions)
        self.transformer = nn.Transformer(
            D,
            H,
            SIZES["num_encoder_layers"],
            SIZES["num_decoder_layers"],
            SIZES["d_ff"],
            dropout=0.0,
            activation=activation,
            batch_first=True,
            norm_first=norm == "pre",
        )
        if norm == "post":
            self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.output = nn.Linear(D, TGT_V)
        if tie_embeddings != "none":
            self.output.weight = self.tgt_embedding.tokens.weight

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        states = self.transformer(
            self.src_embedding(src),
            self.tgt_embedding(tgt),
            tgt_mask=~torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).tril(),
            src_key_padding_mask=src == PAD_ID,
            tgt_key_padding_mask=tgt == PAD_ID,
            memory_key_padding_mask=src == PAD_ID,
        )
        return self.output(states)


def renamed(of_ours: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give our parameters, or their gradients, the reference's names and layout."""
    parts = defaultdict(list)
    for name, value in of_ours.items():
        last = "norm3" if name.startswith("decoder_layers") else "norm2"
        for ours, theirs in (NAMES | {"norm_feed_forward": last}).items():
            name = name.replace(ours, theirs)
        parts[re.sub(r"w_[qkv]\.", "in_proj_", name)].append(value)  # theirs has the three one below the other
    return {name: torch.cat(values) for name, values in parts.items()}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("dtype", WITHIN, ids=str)
@pytest.mark.parametrize("options", CASES, ids=lambda options: "-".join(map(str, options.values())))
def test_logits_and_every_gradient_equal_those_of_pytorchs_transformer_with_copied_weights(options, dtype):
    model = make_model(Transformer, **SIZES | options).to(dtype)
    for parameter in model.parameters():  # biases other than 0 and norms other than 1, so that a swap shows
        nn.init.uniform_(parameter, 0.5, 1.5) if parameter.dim() == 1 else nn.init.normal_(parameter, std=0.3)
    reference = Reference(**options).to(dtype)
    weights, copies = renamed(dict(model.named_parameters())), dict(reference.named_parameters())
    assert weights.keys() == copies.keys()
    with torch.no_grad():
        for name, copy in copies.items():
            copy.copy_(weights[name])

    src, whole = random_sequences([9, 4, 6], vocab_size=SRC_V), random_sequences([9, 8, 4], vocab_size=TGT_V)
    tgt_in, tgt_out = whole[:, :-1], whole[:, 1:]
    logits = model(src, tgt_in)
    expected = reference(src, tgt_in)
    for each in (logits, expected):
        sequence_loss(each, tgt_out).backward()
    within = {"atol": WITHIN[dtype], "rtol": 0}
    real = tgt_out != PAD_ID
    gradients = renamed({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, copy in copies.items():
        if name.endswith("tokens.weight"):
            copy.grad[PAD_ID] = 0  # ours does not train the embedding of PAD, which a tied output layer would
    assert_close(logits[real], expected[real], **within)
    assert_close(gradients, {name: copy.grad for name, copy in copies.items()}, **within)
