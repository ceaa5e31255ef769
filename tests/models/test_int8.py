"""8-bit products: as near as rounding allows, the same in any batch, and the model that is copied stays as it is."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from core.config.sections import TransformerConfig
from core.generation import Beam, Greedy
from core.generation.translation import decode_sources
from core.models.int8 import Int8Linear, int8_copy, rounded
from core.models.step_decoder import StepDecoder, step_decoder
from core.models.transformer import Transformer
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.run import Run
from core.storage.errors import InputError
from core.tasks import fixed_pairs
from core.text.vocab import EOS_ID

SIZES = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "d_ff": 32, "max_seq_len": 24}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small weights are rounded, too."""
    monkeypatch.setattr("core.models.int8.MIN_NUMEL", 1)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_a_product_is_that_of_the_rounded_numbers(activation: str):
    torch.manual_seed(0)
    linear, x = nn.Linear(40, 24), torch.randn(3, 5, 40) * torch.logspace(-3, 2, 5)[:, None]
    x[1, 2] = 0
    (of_weight, weight), (of_rows, rows) = rounded(linear.weight), rounded(x.flatten(0, 1))
    plain = (of_rows[:, None] * rows) @ (of_weight[:, None] * weight).t() + linear.bias
    expected = {"none": plain, "relu": plain.relu(), "gelu": nn.functional.gelu(plain)}[activation].view(3, 5, 24)
    product = Int8Linear(linear.weight, linear.bias, activation)
    assert_close(product(x), expected)
    if activation == "none":
        out = torch.empty(24, 5)
        product.columns(x[0], out)
        assert_close(out, expected[0].t())
        assert_close(product.columns(x[0]), expected[0].t())


@torch.no_grad()
def test_a_row_does_not_depend_on_the_others():
    linear, x = nn.Linear(48, 30), torch.randn(70, 48)
    product = Int8Linear(linear.weight, linear.bias)
    x[1:] *= 1_000
    assert torch.equal(product(x)[0], product(x[:1])[0])
    assert torch.equal(product(x)[40:43], product(x[40:43]))
    column = x[:1].t().contiguous().t()  # with strides (1, 1)
    assert torch.equal(product(column), product(x)[:1])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("strategy", [Greedy(), Beam(beam_size=3)])
def test_a_trained_model_gives_nearly_all_of_its_outputs_in_any_batches(strategy: Greedy | Beam):
    trained = Run(RunFolder(DEFAULT_ROOT, "digits-reversal-shipped")).trained()
    sources = [
        [token for token in row if token > EOS_ID] for row in fixed_pairs(trained.task, 200, split="test").src.tolist()
    ]
    before = {name: weight.clone() for name, weight in trained.model.state_dict().items()}
    copy = int8_copy(trained.model)
    outputs = decode_sources(copy, sources, strategy=strategy)
    plain = decode_sources(trained.model, sources, strategy=strategy)
    assert sum(map(lambda one, other: one == other, outputs, plain)) >= 195
    assert decode_sources(copy, sources, strategy=strategy, batch_size=7) == outputs
    for name, weight in trained.model.state_dict().items():
        assert torch.equal(weight, before[name])
    assert trained.model.step_weights is None


@pytest.mark.usefixtures("small")
@torch.no_grad()
def test_encoder_and_decoder_multiply_in_8_bits():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**SIZES), 20, 20).eval()
    src, tokens = torch.tensor([[1, 5, 6, 7, EOS_ID]]), torch.tensor([[1]])
    copy = int8_copy(model)
    memory, rounded_memory = model.encode(src), copy.encode(src)
    assert 1e-4 < (memory.states - rounded_memory.states).abs().max() < 0.1
    decoder = step_decoder(copy, memory, 1)
    assert isinstance(decoder, StepDecoder)
    logits = StepDecoder(model, use_columns=True).decode(tokens, memory).logits
    assert 1e-4 < (decoder.decode(tokens, memory).logits - logits).abs().max() < 0.1


def test_only_large_weights_are_rounded():
    model = Transformer(TransformerConfig(**SIZES | {"d_ff": 2_048}), 20, 20).eval()
    copy = int8_copy(model)
    assert [name for name, each in copy.named_modules() if type(each) is Int8Linear] == [
        f"encoder_layers.0.feed_forward.{name}" for name in ("widen", "narrow")
    ]
    (layer,) = copy.step_weights.layers
    assert [type(each) is Int8Linear for each in (layer.qkv, layer.cross_out, layer.widen, layer.narrow)] == [
        False,
        False,
        True,
        True,
    ]
    with pytest.raises(InputError, match=r"int8 is for products with weights of at least 32,768"):
        int8_copy(Transformer(TransformerConfig(**SIZES), 5_000, 20))  # only its embedding is large
    joined = SIZES | {"d_model": 112, "d_ff": 100}  # only queries, keys and values together are large
    assert isinstance(
        int8_copy(Transformer(TransformerConfig(**joined), 20, 20)).step_weights.layers[0].qkv, Int8Linear
    )


@pytest.mark.parametrize("changes", [{"positions": "rope"}, {"feed_forward_block": "gated"}, {"activation": "silu"}])
def test_a_model_that_has_no_step_decoder_is_refused(changes: dict[str, str]):
    with pytest.raises(InputError, match="int8 needs an encoder-decoder Transformer"):
        int8_copy(Transformer(TransformerConfig(**SIZES | changes), 20, 20))
