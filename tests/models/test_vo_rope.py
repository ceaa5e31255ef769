"""VO-RoPE: outputs depend on distances only; position strides in training come from the run's generator."""

from itertools import islice

import pytest
import torch
from torch.testing import assert_close

from core.models.attention import MultiHeadAttention
from core.models.positions import NO_POSITIONS, VO_ROPE_BASE, RelativePositions, Rotation, rotary_inv_freq
from core.models.transformer import Transformer
from core.runs.training_state import load_state
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID
from core.training.checkpoint import save_state
from core.training.loop import StepEvent, train
from tests.support.scripted_models import make_model

SIZES = {"src_vocab_size": 13, "tgt_vocab_size": 13, "d_model": 16, "num_heads": 2, "num_encoder_layers": 1}
SIZES |= {"num_decoder_layers": 1, "d_ff": 32, "max_seq_len": 12, "positions": "vo-rope"}


def build(position_stretch: float = 1.0, seed: int = 0) -> Transformer:
    torch.manual_seed(0)  # the same weights
    return make_model(
        Transformer, **SIZES, position_stretch=position_stretch, generator=torch.Generator().manual_seed(seed)
    )


def sequences(count: int = 3, width: int = 6) -> torch.Tensor:
    rows = torch.randint(3, 13, (count, width))
    rows[:, 0] = BOS_ID
    return rows


def attended(attention: MultiHeadAttention, x: torch.Tensor, position_ids: torch.Tensor | None) -> torch.Tensor:
    positions = NO_POSITIONS
    if position_ids is not None:
        positions = RelativePositions(vo_rope=Rotation.at(position_ids[None], rotary_inv_freq(8, VO_ROPE_BASE)))
    return attention(x, attention.keys_values(x, positions), None, positions)


# --- rotation ---------------------------------------------------------------------------------------------------


def test_a_rotation_is_a_complex_product_and_can_be_inverted():
    x, position_ids, inv_freq = (
        torch.randn(2, 3, 5, 8),
        torch.tensor([[0.0, 1.0, 2.0, 7.5, 40.0]]),
        rotary_inv_freq(8, 10.0),
    )
    rotation = Rotation.at(position_ids, inv_freq)
    turned = rotation.apply(x)
    for position in range(5):
        for pair, frequency in enumerate(inv_freq):
            number = torch.complex(x[..., position, 2 * pair], x[..., position, 2 * pair + 1])
            expected = number * torch.exp(1j * position_ids[0, position] * frequency)
            assert_close(turned[..., position, 2 * pair], expected.real, atol=1e-5, rtol=1e-5)
            assert_close(turned[..., position, 2 * pair + 1], expected.imag, atol=1e-5, rtol=1e-5)
    assert_close(rotation.invert(turned), x, atol=1e-5, rtol=1e-5)


def test_outputs_depend_on_distances_only():
    attention, x = MultiHeadAttention(16, 2).eval(), torch.randn(2, 5, 16)
    position_ids = torch.arange(5.0)
    here = attended(attention, x, position_ids)
    assert_close(attended(attention, x, position_ids + 31), here, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(attended(attention, x, 2 * position_ids), here, atol=1e-3)
    assert_close(attended(attention, x, 0 * position_ids), attended(attention, x, None), atol=1e-5, rtol=1e-5)


# --- position stretch -------------------------------------------------------------------------------------------


def test_in_training_source_and_target_share_a_stride_per_sequence():
    model, src, tgt = build(5.0).train(), sequences(), sequences()
    memory = model.encode(src)
    assert memory.stride.shape == (3, 1)
    assert len(memory.stride.unique()) == 3
    for row, stride in enumerate(memory.stride):
        spread = build()
        for each in (spread.relative, spread.decoder_relative):
            each.inv_freq = each.inv_freq * stride
        own = memory.select(torch.tensor([row]))
        assert_close(spread.encode(src[row, None]).states, own.states, atol=1e-5, rtol=1e-4)
        expected = spread.decode(tgt[row, None], spread.encode(src[row, None])).logits
        assert_close(model.decode(tgt, memory).logits[row, None], expected, atol=1e-5, rtol=1e-4)


def test_strides_are_log_uniform_from_1_to_position_stretch():
    strides = build(5.0).train().encode(sequences(4_000)).stride
    for fraction in (0.25, 0.5, 0.75):
        assert (strides < 5**fraction).float().mean().item() == pytest.approx(fraction, abs=0.03)
    assert 1 <= strides.min() < 1.01 < 4.97 < strides.max() <= 5


def test_in_evaluation_the_stride_is_1_and_nothing_is_drawn():
    model, src, tgt = build(5.0).eval(), sequences(), sequences()
    before = model.generator.get_state()
    assert_close(model(src, tgt), build().eval()(src, tgt), atol=0, rtol=0)
    assert torch.equal(model.generator.get_state(), before)
    assert model.encode(src).stride is None


def test_without_position_stretch_nothing_is_drawn():
    model = build().train()
    before = model.generator.get_state()
    model(sequences(), sequences())
    assert torch.equal(model.generator.get_state(), before)


def test_step_by_step_in_training_equals_one_call():
    model, src, tgt = build(4.0).train(), sequences(), sequences()
    memory = model.encode(src)
    whole, cache, steps = model.decode(tgt, memory).logits, None, []
    for token in tgt.split(1, dim=1):
        step = model.decode(token, memory, cache)
        cache = step.cache
        steps.append(step.logits)
    assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=1e-4)


def test_strides_are_drawn_from_the_runs_generator_only():
    src, tgt = sequences(), sequences()
    state = torch.get_rng_state()
    first, again, other = (build(5.0, seed).train()(src, tgt) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.set_rng_state(state)
    model = build(5.0, 1).train()
    before = torch.get_rng_state()
    model(src, tgt)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_saved_and_loaded_continues_bit_for_bit(tiny, tmp_path):
    preset = tiny.with_changes({"model.positions": "vo-rope", "model.position_stretch": 3.0, "model.dropout": 0.2})
    straight, halved = new_state(preset), new_state(preset)
    losses = [event.loss for event in train(straight) if isinstance(event, StepEvent)]
    first = [event.loss for event in islice(train(halved), 5) if isinstance(event, StepEvent)]
    save_state(tmp_path / "last.safetensors", halved)
    loaded = load_state(tmp_path / "last.safetensors", preset)
    rest = [event.loss for event in train(loaded) if isinstance(event, StepEvent)]
    assert 0 < len(first) < len(losses)
    assert first + rest == losses
    assert_close(dict(loaded.model.state_dict()), dict(straight.model.state_dict()), atol=0, rtol=0)
