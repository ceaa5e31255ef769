"""Every model's gradients are those of finite differences, in double precision, for every parameter."""

import pytest
import torch
from torch.func import functional_call

from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.seq2seq import Seq2Seq
from core.models.transformer import Transformer
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import make_model

V = 6
BLOCKS = {"d_model": 4, "num_heads": 2, "d_ff": 6, "max_seq_len": 6, "activation": "gelu"}
STACKS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
RECURRENT = {"d_embedding": 3, "d_hidden": 4, "num_layers": 2, "max_seq_len": 6}
MODELS = {
    "post-norm": (Transformer, BLOCKS | STACKS),
    "pre-norm": (Transformer, BLOCKS | STACKS | {"norm": "pre", "positions": "alibi"}),
    "relu, learned positions": (Transformer, BLOCKS | STACKS | {"activation": "relu", "positions": "learned"}),
    "rotated values": (Transformer, BLOCKS | STACKS | {"positions": "vo-rope"}),
    "log-length": (Transformer, BLOCKS | STACKS | {"attention_scale": "log-length"}),
    "decoder-only": (DecoderOnly, BLOCKS | {"num_layers": 1}),
    "encoder-only": (EncoderOnly, BLOCKS | {"num_layers": 1}),
    "encoder-only, pre-norm": (EncoderOnly, BLOCKS | {"num_layers": 2, "norm": "pre"}),
    "gru": (GRUSeq2Seq, RECURRENT),
    "lstm": (GRUSeq2Seq, RECURRENT | {"cell": "lstm"}),
    "rnn": (GRUSeq2Seq, RECURRENT | {"cell": "rnn"}),
    "stack-rnn": (GRUSeq2Seq, RECURRENT | {"cell": "stack-rnn"}),
}


@pytest.fixture(params=MODELS)
def model(request) -> Seq2Seq:
    kind, sizes = MODELS[request.param]
    built = make_model(kind, src_vocab_size=V, tgt_vocab_size=V, **sizes).double()
    for parameter in built.parameters():  # so that no gradient is small because its factors are
        torch.nn.init.uniform_(parameter, -1, 1)
    return built


def test_gradients_equal_finite_differences(model):
    src = torch.tensor([[BOS_ID, 4, 5, 3, EOS_ID], [BOS_ID, 5, EOS_ID, PAD_ID, PAD_ID]])
    tgt_in = torch.tensor([[BOS_ID, 3, 5], [BOS_ID, 4, PAD_ID]])
    names, parameters = zip(*model.named_parameters(), strict=True)

    def log_probs(*values: torch.Tensor) -> torch.Tensor:
        """Of the targets that are not PAD."""
        logits = functional_call(model, dict(zip(names, values, strict=True)), (src, tgt_in))
        return logits.log_softmax(dim=-1)[tgt_in != PAD_ID]

    assert torch.autograd.gradcheck(log_probs, parameters, fast_mode=True)
