"""An encoder-only model equals PyTorch's encoder, scores each position once, and decodes like the other families."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from core.evaluation.accuracy import sequence_loss
from core.generation import GREEDY, Beam, Sample, generate
from core.models import forward_with_attention
from core.models.encoder_only import EncoderOnly
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.models.test_parity import Embedded, renamed
from tests.support.scripted_models import (
    assert_same_maps_at_valid_steps,
    decoder_inputs,
    encoder_only,
    make_model,
    random_sequences,
)

V, D, H, LAYERS, FF, LONGEST = 13, 16, 4, 3, 32, 12
CASES = [
    {"norm": "post"},
    {"norm": "pre"},
    {"norm": "post", "activation": "gelu", "positions": "learned", "tie_embeddings": "all"},
    {"norm": "pre", "activation": "gelu", "positions": "none"},
]
WITHIN = {torch.float64: 1e-12, torch.float32: 1e-5}


class Reference(nn.Module):
    """The same model around ``nn.TransformerEncoder``, which scores every source position."""

    def __init__(
        self, *, norm: str, activation: str = "relu", positions: str = "sinusoidal", tie_embeddings: str = "none"
    ) -> None:
        super().__init__()
        self.src_embedding = Embedded(V, positions)
        layer = nn.TransformerEncoderLayer(
            D, H, FF, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
        )
        last = nn.LayerNorm(D) if norm == "pre" else None
        self.transformer = nn.ModuleDict({"encoder": nn.TransformerEncoder(layer, LAYERS, last)})
        self.output = nn.Linear(D, V)
        if tie_embeddings == "all":
            self.output.weight = self.src_embedding.tokens.weight

    def forward(self, src: torch.Tensor) -> torch.Tensor:
        states = self.transformer["encoder"](self.src_embedding(src), src_key_padding_mask=src == PAD_ID)
        return self.output(states)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("dtype", WITHIN, ids=str)
@pytest.mark.parametrize("options", CASES, ids=lambda options: "-".join(options.values()))
def test_logits_and_every_gradient_equal_those_of_pytorchs_encoder_with_copied_weights(options, dtype):
    sizes = {"d_model": D, "num_heads": H, "num_layers": LAYERS, "d_ff": FF, "max_seq_len": LONGEST}
    model = make_model(EncoderOnly, src_vocab_size=V, tgt_vocab_size=V, **sizes, **options).to(dtype)
    for parameter in model.parameters():  # biases other than 0 and norms other than 1, so that a swap shows
        nn.init.uniform_(parameter, 0.5, 1.5) if parameter.dim() == 1 else nn.init.normal_(parameter, std=0.3)
    reference = Reference(**options).to(dtype)
    weights, copies = renamed(dict(model.named_parameters())), dict(reference.named_parameters())
    assert weights.keys() == copies.keys()
    with torch.no_grad():
        for name, copy in copies.items():
            copy.copy_(weights[name])

    src = random_sequences([9, 4, 6], vocab_size=V)
    tgt_out = random_sequences([9, 4, 6], vocab_size=V)[:, 1:]
    logits, expected = model(src, torch.full((3, 8), BOS_ID)), reference(src)[:, 1:]  # BOS is not scored
    for each in (logits, expected):
        sequence_loss(each, tgt_out).backward()
    within = {"atol": WITHIN[dtype], "rtol": 0}
    real = tgt_out != PAD_ID
    assert_close(logits[real], expected[real], **within)
    gradients = renamed({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, copy in copies.items():
        grad = copy.grad.clone()
        if "tokens" in name:
            grad[PAD_ID] = 0  # ours is not trained
        assert_close(gradients[name], grad, **within)


@pytest.fixture(params=["sinusoidal", "alibi", "rope", "vo-rope"])
def model(request) -> EncoderOnly:
    """A random model with outputs that depend on the source and differ in length."""
    return encoder_only(positions=request.param)


@pytest.fixture
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(8, split="test", generator=torch.Generator().manual_seed(0)).src


def test_every_token_sees_every_other_and_never_pad(model, src):
    _, maps = forward_with_attention(model, src, src[:, :3])
    assert maps.decoder is maps.cross is None
    seen = (maps.encoder > 0).all(dim=2).all(dim=0)  # (B, S, S), by every head of every layer
    assert torch.equal(seen, (src != PAD_ID)[:, None].expand_as(seen))


def test_positions_are_predicted_independently_of_the_decoder_input(model, src):
    logits = model(src, torch.full((len(src), 5), BOS_ID))
    assert torch.equal(model(src, torch.full((len(src), 5), 7)), logits)
    memory = model.encode(src)
    later = model.decode(src[:, 2:5], memory, model.decode(src[:, :2], memory).cache)
    assert_close(later.logits, logits[:, 2:])


def test_step_t_is_the_position_after_bos_and_steps_beyond_the_source_are_those_of_eos():
    model = encoder_only()
    src = torch.tensor([[BOS_ID, 5, 6, EOS_ID, PAD_ID, PAD_ID], [BOS_ID, 5, 6, 7, 8, EOS_ID]])
    memory = model.encode(src)
    logits = model.decode(torch.full((2, 7), BOS_ID), memory).logits
    of_positions = model.output(memory.states)
    for row, positions in enumerate(([1, 2, 3, 3, 3, 3, 3], [1, 2, 3, 4, 5, 5, 5])):
        assert_close(logits[row], of_positions[row, positions])


def test_recorded_maps_equal_those_of_teacher_forcing(model, src):
    for strategy in (GREEDY, Beam(beam_size=3), Sample(temperature=1.5, seed=3)):
        decoded = generate(model, src, max_steps=8, strategy=strategy, need_weights=True)
        _, maps = forward_with_attention(model, src, decoder_inputs(decoded))
        assert_same_maps_at_valid_steps(decoded, maps)
        assert torch.equal(decoded.maps.over_source(src.shape[1]), decoded.maps.encoder[..., 1:, :])
