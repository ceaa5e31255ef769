"""The Transformer equals PyTorch's own layers with copied weights: logits, memory and every gradient."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from core.evaluation import sequence_loss
from core.models.embeddings import sinusoidal_positions
from core.models.transformer import Transformer
from core.vocab import BOS_ID, EOS_ID, PAD_ID

V, D, H, LAYERS, FF, LONGEST = 13, 16, 4, 2, 32, 12
SIZES = {
    "src_vocab_size": V,
    "tgt_vocab_size": V,
    "d_model": D,
    "num_heads": H,
    "num_encoder_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "d_ff": FF,
    "max_seq_len": LONGEST,
}


CLOSE = {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture(params=[("post", "relu"), ("pre", "relu"), ("pre", "gelu")], ids="-".join)
def model(request) -> Transformer:
    norm, activation = request.param
    return Transformer(**SIZES, norm=norm, activation=activation).eval()


def sequences(lengths: list[int], width: int) -> torch.Tensor:
    """Random rows (B, width): BOS, symbols, PAD behind each row's length."""
    rows = torch.randint(3, V, (len(lengths), width))
    rows[:, 0] = BOS_ID
    return rows.masked_fill(torch.arange(width) >= torch.tensor(lengths)[:, None], PAD_ID)


def copy_attention(ours, theirs) -> None:
    projections = (ours.w_q, ours.w_k, ours.w_v)
    theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in projections]))
    theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in projections]))
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


@torch.no_grad()
def reference_stacks(model: Transformer) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """PyTorch's stacks with our weights; like ours, with a norm at the end only if the layers have theirs before."""
    layer = model.encoder_layers[0]
    sizes = {"d_model": D, "nhead": H, "dim_feedforward": FF, "dropout": 0.0, "batch_first": True}
    sizes |= {"norm_first": layer.is_pre_norm, "activation": layer.feed_forward.activation}
    norms = [nn.LayerNorm(D) if layer.is_pre_norm else None for _ in range(2)]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), LAYERS, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), LAYERS, norms[1])
    for ours, theirs in zip((model.encoder_norm, model.decoder_norm), norms, strict=True):
        if theirs is not None:
            theirs.load_state_dict(ours.state_dict())
    for ours, theirs in zip(model.encoder_layers, encoder.layers, strict=True):
        copy_attention(ours.self_attention, theirs.self_attn)
        norms = (ours.norm_attention, ours.norm_feed_forward)
        copy_rest(ours, theirs, norms, (theirs.norm1, theirs.norm2))
    for ours, theirs in zip(model.decoder_layers, decoder.layers, strict=True):
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        norms = (ours.norm_self, ours.norm_cross, ours.norm_feed_forward)
        copy_rest(ours, theirs, norms, (theirs.norm1, theirs.norm2, theirs.norm3))
    return encoder, decoder


def copy_rest(ours, theirs, norms, their_norms) -> None:
    theirs.linear1.load_state_dict(ours.feed_forward.widen.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.narrow.state_dict())
    for own, other in zip(norms, their_norms, strict=True):
        other.load_state_dict(own.state_dict())


def gradients_of_attention(ours) -> list[torch.Tensor]:
    projections = (ours.w_q, ours.w_k, ours.w_v)
    weights = torch.cat([linear.weight.grad for linear in projections])
    biases = torch.cat([linear.bias.grad for linear in projections])
    return [weights, biases, ours.w_o.weight.grad, ours.w_o.bias.grad]


def gradients_of_reference_attention(theirs) -> list[torch.Tensor]:
    inner = [theirs.in_proj_weight.grad, theirs.in_proj_bias.grad]
    return [*inner, theirs.out_proj.weight.grad, theirs.out_proj.bias.grad]


def test_logits_and_every_gradient_equal_pytorchs_transformer_with_copied_weights(model):
    model.train()
    for parameter in model.parameters():  # norms other than one and zero, so that a swap shows
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, 0.5, 1.5)
    src, tgt = sequences([9, 4, 6], 9), sequences([8, 8, 3], 8)
    tgt_out = tgt.roll(-1, 1).masked_fill(torch.arange(8) == 7, EOS_ID).masked_fill(tgt == PAD_ID, PAD_ID)

    encoder, decoder = reference_stacks(model)
    src_table, tgt_table = (
        embedding.tokens.weight.detach().clone().requires_grad_()
        for embedding in (model.src_embedding, model.tgt_embedding)
    )
    positions = sinusoidal_positions(9, D)
    padded = src == PAD_ID
    memory = encoder(src_table[src] * math.sqrt(D) + positions, src_key_padding_mask=padded)
    states = decoder(
        tgt_table[tgt] * math.sqrt(D) + positions[:8],
        memory,
        tgt_mask=~torch.ones(8, 8, dtype=torch.bool).tril(),
        tgt_key_padding_mask=tgt == PAD_ID,
        memory_key_padding_mask=padded,
    )
    output = nn.Linear(D, V)
    output.load_state_dict(model.output.state_dict())
    expected = output(states)
    sequence_loss(expected, tgt_out).backward()

    logits, maps = model(src, tgt)
    assert maps is None
    sequence_loss(logits, tgt_out).backward()
    real = tgt != PAD_ID
    assert_close(logits[real], expected[real], **CLOSE)
    assert_close(model.src_embedding.tokens.weight.grad, src_table.grad, **CLOSE)
    assert_close(model.tgt_embedding.tokens.weight.grad, tgt_table.grad, **CLOSE)
    assert_close(model.output.weight.grad, output.weight.grad, **CLOSE)
    if encoder.norm is not None:
        assert_close(model.encoder_norm.weight.grad, encoder.norm.weight.grad, **CLOSE)
        assert_close(model.decoder_norm.bias.grad, decoder.norm.bias.grad, **CLOSE)
    for ours, theirs in zip(model.encoder_layers, encoder.layers, strict=True):
        assert_close(gradients_of_attention(ours.self_attention), gradients_of_reference_attention(theirs.self_attn))
        assert_close(ours.feed_forward.widen.weight.grad, theirs.linear1.weight.grad, **CLOSE)
        assert_close(ours.norm_attention.weight.grad, theirs.norm1.weight.grad, **CLOSE)
        assert_close(ours.norm_feed_forward.bias.grad, theirs.norm2.bias.grad, **CLOSE)
    for ours, theirs in zip(model.decoder_layers, decoder.layers, strict=True):
        for own, other in ((ours.self_attention, theirs.self_attn), (ours.cross_attention, theirs.multihead_attn)):
            assert_close(gradients_of_attention(own), gradients_of_reference_attention(other), **CLOSE)
        assert_close(ours.feed_forward.narrow.weight.grad, theirs.linear2.weight.grad, **CLOSE)
        assert_close(ours.norm_self.weight.grad, theirs.norm1.weight.grad, **CLOSE)
        assert_close(ours.norm_cross.weight.grad, theirs.norm2.weight.grad, **CLOSE)
        assert_close(ours.norm_feed_forward.weight.grad, theirs.norm3.weight.grad, **CLOSE)


def test_memory_equals_pytorchs_encoder(model):
    src = sequences([9, 4, 6], 9)
    encoder, _ = reference_stacks(model)
    embedded = model.src_embedding.tokens(src) * math.sqrt(D) + sinusoidal_positions(9, D)
    expected = encoder.train()(embedded, src_key_padding_mask=src == PAD_ID)
    real = src != PAD_ID
    assert_close(model.encode(src).states[real], expected[real], **CLOSE)
