"""Bad calls of every module that reads tensors: the message has the names of the axes, the sizes, and the rule."""

from collections.abc import Callable

import pytest
import torch

from core.config.sections import GRUConfig, TransformerConfig
from core.models.additive_attention import AdditiveAttention
from core.models.attention import MultiHeadAttention
from core.models.cells import LSTMCell, RecurrentLayer, RNNCell
from core.models.embeddings import Embedding, Output
from core.models.gru import Decoder, Encoder, GRUCache
from core.models.kernels import Dropout
from core.models.layers import DecoderContext, DecoderLayer, EncoderLayer, FeedForward
from core.models.positions import sinusoidal_positions

CONFIG = TransformerConfig(d_model=16, num_heads=2, d_ff=32, max_seq_len=8)
RECURRENT = GRUConfig(d_embedding=8, d_hidden=16, num_layers=1)
X, SOURCE = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
SEEN = torch.ones(2, 1, 1, 5, dtype=torch.bool)
IDS = torch.ones(2, 5, dtype=torch.int64)


def embed(ids: torch.Tensor) -> torch.Tensor:
    return Embedding(13, 16, Dropout(0.0), sinusoidal_positions(8, 16))(ids)


def additive(query: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    attention = AdditiveAttention(16)
    return attention(query, attention.keys_values(SOURCE), mask)


def decode_gru(x: torch.Tensor, sequences: int = 2) -> object:
    decoder = Decoder(RECURRENT, None)
    cache = GRUCache(torch.zeros(1, 2, 16), decoder.attention.keys_values(SOURCE))
    return decoder(x, cache, torch.ones(sequences, 1, 1, 4, dtype=torch.bool))


def decode_layer(x: torch.Tensor, source: torch.Tensor, mask: torch.Tensor | None) -> object:
    layer = DecoderLayer(CONFIG)
    return layer(x, layer.new_cache(source), DecoderContext(mask, None))


WIDE = "x is (B=2, T=5, D=12): it must be (B, T, D) with D="
CALLS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "feed-forward, width": (lambda: FeedForward(CONFIG)(X[..., :12]), ValueError, WIDE + "16"),
    "feed-forward, one sequence": (lambda: FeedForward(CONFIG)(X[0]), ValueError, "x is (5, 16): it must be (B, T, D)"),
    "output, width": (
        lambda: Output(16, 13)(X[..., :12]),
        ValueError,
        "input is (2, 5, 12): its last axis must be D=16",
    ),
    "embedding, dtype": (lambda: embed(IDS.float()), TypeError, "ids is float32: token ids must be int64"),
    "embedding, one sequence": (lambda: embed(IDS[0]), ValueError, "ids is (5,): token ids must be (B, T)"),
    "embedding, id": (lambda: embed(IDS + 12), ValueError, "ids has token id 13: ids must be from 0 to 12"),
    "embedding, negative id": (lambda: embed(IDS - 3), ValueError, "ids has token id -2: ids must be from 0 to 12"),
    "embedding, too long": (lambda: embed(IDS.repeat(1, 2)), ValueError, "ids is (B=2, T=10): T must be at most 8"),
    "encoder layer, width": (lambda: EncoderLayer(CONFIG)(X[..., :12], SEEN), ValueError, WIDE + "16"),
    "encoder layer, mask": (
        lambda: EncoderLayer(CONFIG)(X, SEEN.float()),
        TypeError,
        "mask is float32: it must be bool",
    ),
    "encoder layer, mask size": (
        lambda: EncoderLayer(CONFIG)(X, SEEN[..., :3]),
        ValueError,
        "here (B=2, H=2, Tq=5, Tk=5)",
    ),
    "decoder layer, width": (lambda: decode_layer(X[..., :12], SOURCE, None), ValueError, WIDE + "16"),
    "decoder layer, batch": (lambda: decode_layer(X[[0, 0, 1]], SOURCE, None), ValueError, "queries of B=3 sequences"),
    "decoder layer, source": (
        lambda: decode_layer(X, SOURCE[..., :12], None),
        ValueError,
        "D=12): it must be (B, T, D)",
    ),
    "multi-head, keys": (lambda: MultiHeadAttention(16, 2).keys_values(X[..., :12]), ValueError, WIDE + "16"),
    "additive, states": (
        lambda: AdditiveAttention(16).keys_values(X[..., :12]),
        ValueError,
        "states is (B=2, T=5, D=12)",
    ),
    "additive, query": (
        lambda: additive(X[:, 0, :12], SEEN[..., :4]),
        ValueError,
        "query is (B=2, D=12): it must be (B, D)",
    ),
    "additive, batch": (
        lambda: additive(X[[0, 0, 1], 0], SEEN[..., :4]),
        ValueError,
        "query is (B=3, D=16): it must be (B",
    ),
    "additive, mask": (lambda: additive(X[:, 0], SEEN[..., :4].int()), TypeError, "mask is int32: it must be bool"),
    "additive, mask size": (lambda: additive(X[:, 0], SEEN), ValueError, "here (B=2, H=1, Tq=1, Tk=4)"),
    "RNN cell, input": (
        lambda: RNNCell(8, 16)(X[:, 0], X[:, 0]),
        ValueError,
        "x is (B=2, D=16): it must be (B, D) with D=8",
    ),
    "RNN cell, batch": (
        lambda: RNNCell(16, 16)(X[:, 0], X[:1, 0]),
        ValueError,
        "hidden is (B=1, D=16): it must be (B, D) with B=2",
    ),
    "LSTM cell, state": (
        lambda: LSTMCell(16, 16)(X[:, 0], X[:, 0]),
        ValueError,
        "state is (B=2, D=16): it must be (B, D) with B=2 and D=32",
    ),
    "recurrent layer": (
        lambda: RecurrentLayer(RNNCell(8, 16))(X),
        ValueError,
        "x is (B=2, T=5, D=16): it must be (B, T, D) with D=8",
    ),
    "recurrent encoder, width": (
        lambda: Encoder(RECURRENT, None)(X, IDS[:, 0]),
        ValueError,
        "D=16): it must be (B, T, D) with D=8",
    ),
    "recurrent encoder, lengths": (
        lambda: Encoder(RECURRENT, None)(X[..., :8], IDS[0]),
        ValueError,
        "lengths is (5,): it must be (B,) with B=2",
    ),
    "recurrent decoder, width": (lambda: decode_gru(X), ValueError, "D=16): it must be (B, T, D) with B=2 and D=8"),
    "recurrent decoder, batch": (
        lambda: decode_gru(X[..., :8][[0, 0, 1]]),
        ValueError,
        "x is (B=3, T=5, D=8): it must be (B, T, D) with B=2",
    ),
    "recurrent decoder, mask": (
        lambda: decode_gru(X[..., :8], 3),
        ValueError,
        "mask is (3, 1, 1, 4): it must be broadcastable",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_call_is_refused_with_names_sizes_and_rule(name: str):
    call, error, message = CALLS[name]
    with pytest.raises(error) as refused:
        call()
    assert message in str(refused.value)
