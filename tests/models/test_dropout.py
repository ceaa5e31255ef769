"""Dropout: off in evaluation, and drawn from the run's own generator only."""

import pytest
import torch
from torch.testing import assert_close

from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.models.kernels import Dropout
from core.models.transformer import Transformer
from tests.support.scripted_models import make_model
from tests.support.scripted_models import unended_sequences as sequences

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


def with_dropout(seed: int) -> Transformer:
    torch.manual_seed(0)
    return make_model(Transformer, **SIZES, dropout=0.3, generator=torch.Generator().manual_seed(seed))


def test_dropout_is_off_in_evaluation_and_on_in_training():
    model, src, tgt = with_dropout(1), sequences([5], 5), sequences([4], 4)
    without = make_model(Transformer, **SIZES)
    without.load_state_dict(model.state_dict())
    model.eval()
    assert_close(model(src, tgt), without(src, tgt), atol=0, rtol=0)
    model.train()
    assert not torch.equal(model(src, tgt), model(src, tgt))


def test_dropout_draws_from_its_own_generator_only():
    src, tgt = sequences([5], 5), sequences([4], 4)
    first, second, other = with_dropout(1), with_dropout(1), with_dropout(2)
    state = torch.get_rng_state()
    logits = first(src, tgt)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert torch.equal(second(src, tgt), logits)
    assert not torch.equal(other(src, tgt), logits)


@pytest.mark.parametrize("count", [100_000, 100_001, 100_003])
@pytest.mark.parametrize("p", [0.25, 0.1, 1e-3])
def test_dropout_zeroes_a_fraction_p_and_keeps_the_mean(p, count):
    dropped = Dropout(p, torch.Generator().manual_seed(0))(torch.ones(count))
    assert dropped.shape == (count,)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    spread = (p * (1 - p) / count) ** 0.5
    assert (dropped == 0).float().mean().item() == pytest.approx(p, abs=4 * spread)


def test_neighboring_elements_are_dropped_independently():
    gone = Dropout(0.25, torch.Generator().manual_seed(0))(torch.ones(400_000)) == 0
    for apart in range(1, 9):  # four are drawn of the same bits
        both = (gone[apart:] & gone[:-apart]).float().mean().item()
        assert both == pytest.approx(0.25**2, abs=0.002)


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_p_must_be_at_least_0_and_below_1(p):
    with pytest.raises(ValueError, match=f"dropout={p}"):
        Dropout(p)


def test_dropout_is_independent_of_the_strides():
    ones = torch.ones(3, 4, 5)
    lying = ones.movedim(-1, 0).contiguous().movedim(0, -1)
    assert lying.stride() != ones.stride()
    dropped = [Dropout(0.5, torch.Generator().manual_seed(0))(each) for each in (ones, lying)]
    assert torch.equal(*dropped)


def test_activation_dropout_is_between_the_two_maps_of_the_feed_forward_network():
    model = make_model(Transformer, **SIZES, activation_dropout=0.5, generator=torch.Generator().manual_seed(1))
    network, x = model.encoder_layers[0].feed_forward, torch.randn(2, 3, D)
    activations: list[torch.Tensor] = []
    network.narrow.register_forward_pre_hook(lambda _, inputs: activations.append(inputs[0]))
    trained = network(x)
    network.eval()(x)
    dropped, kept = activations
    is_zero = (dropped == 0) & (kept > 0)
    assert 0.3 < (is_zero.sum() / (kept > 0).sum()) < 0.7
    assert_close(dropped[~is_zero], 2 * kept[~is_zero])
    assert_close(trained, network.narrow(dropped))


@pytest.mark.parametrize("kind", [Transformer, DecoderOnly, EncoderOnly])
def test_without_activation_dropout_no_random_number_is_drawn(kind):
    sizes = {name: size for name, size in SIZES.items() if "num_" not in name or kind is Transformer}
    models = [make_model(kind, **sizes, activation_dropout=p, generator=torch.Generator()) for p in (0.0, 0.2)]
    states = []
    for model in models:
        model.generator = next(m.generator for m in model.modules() if isinstance(m, Dropout))
        before = model.generator.get_state()
        model(sequences([5], 5), sequences([4], 4))
        states.append(torch.equal(before, model.generator.get_state()))
    assert states == [True, False]
