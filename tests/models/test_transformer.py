"""The Transformer sees what it may see, and its weights and their number are as documented."""

import math

import pytest
import torch
from torch.testing import assert_close

from core.config import load_preset, preset_names
from core.evaluation.accuracy import sequence_loss
from core.evaluation.outputs import is_exact
from core.generation import generate
from core.models import build_model, count_parameters, forward_with_attention, parameters_of
from core.models.embeddings import Embedding
from core.models.kernels import Dropout
from core.models.positions import sinusoidal_positions
from core.models.transformer import Transformer
from core.tasks import build_task
from core.teaching.bugs import new_state
from tests.support.scripted_models import make_model
from tests.support.scripted_models import unended_sequences as sequences

V, D, H, LAYERS = 13, 16, 4, 2
CLOSE = {"atol": 1e-5, "rtol": 1e-4}
SIZES = {
    "src_vocab_size": V,
    "tgt_vocab_size": V,
    "d_model": D,
    "num_heads": H,
    "num_encoder_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "d_ff": 32,
    "max_seq_len": 12,
}


@pytest.fixture
def model() -> Transformer:
    return make_model(Transformer, **SIZES).eval()


def oracle_positions(length: int, width: int) -> torch.Tensor:
    """The formula of section 3.5, one number at a time in double precision."""
    return torch.tensor(
        [
            [
                (math.sin, math.cos)[column % 2](position / 10000 ** ((column - column % 2) / width))
                for column in range(width)
            ]
            for position in range(length)
        ],
        dtype=torch.float64,
    )


# --- positions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "width"), [(1, 2), (64, 64), (512, 10)])
def test_positions_follow_the_formula_in_double_precision(length, width):
    assert_close(sinusoidal_positions(length, width).double(), oracle_positions(length, width), atol=1e-7, rtol=0)


def test_embedding_scales_tokens_and_adds_positions_from_start():
    embedding = Embedding(V, D, Dropout(0.0), sinusoidal_positions(8, D))
    ids = torch.tensor([[5, 5, 7]])
    expected = embedding.tokens.weight[ids] * 4.0 + oracle_positions(8, D)[2:5].float()
    assert_close(embedding(ids, start=2), expected, atol=1e-6, rtol=0)


# --- masks ------------------------------------------------------------------------------------------------------


def test_past_targets_and_all_source_tokens_change_later_logits(model):
    src, tgt = sequences([5], 5), sequences([4], 4)
    logits = model(src, tgt)
    for position in range(1, 5):
        other_src = src.clone()
        other_src[0, position] = 3 + (src[0, position] - 2) % (V - 3)
        assert not torch.allclose(model(other_src, tgt), logits, atol=1e-4)
    other_tgt = tgt.clone()
    other_tgt[0, 1] = 3 + (tgt[0, 1] - 2) % (V - 3)
    assert not torch.allclose(model(src, other_tgt)[0, 3], logits[0, 3], atol=1e-4)


def test_maps_have_their_shapes_rows_that_sum_to_one_and_nothing_on_padding(model):
    src, tgt = sequences([6, 4], 6), sequences([5, 5], 5)
    _, maps = forward_with_attention(model, src, tgt)
    assert maps.encoder.shape == (LAYERS, 2, H, 6, 6)
    assert maps.decoder.shape == (LAYERS, 2, H, 5, 5)
    assert maps.cross.shape == (LAYERS, 2, H, 5, 6)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)
        assert not weights.requires_grad
    assert (maps.encoder[:, 1, ..., 4:] == 0).all()
    assert (maps.cross[:, 1, ..., 4:] == 0).all()
    assert (maps.decoder.triu(1) == 0).all()


# --- the models of the presets ----------------------------------------------------------------------------------


def test_the_model_of_digits_reversal_has_exactly_169933_parameters():
    preset = load_preset("digits-reversal")
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator().manual_seed(0))
    assert count_parameters(model) == 169_933
    assert parameters_of(preset.model, task) == 169_933


BY_DAY = ("small", "digits-reversal-decoder-only", "digits-reversal-gru", "masked-digits")  # one of each family


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in BY_DAY else [pytest.mark.slow]) for name in preset_names()]
)
def test_every_presets_initial_loss_is_near_ln_vocab(name):
    preset = load_preset(name)
    state = new_state(preset)
    batch = state.task.sample(4, split="train", generator=state.generator)
    loss = sequence_loss(state.model(batch.src, batch.tgt_in), batch.tgt_out)
    # Logits that vary by σ cost about σ² / 2 more than even ones; those of base vary most.
    assert abs(loss.item() - math.log(len(state.task.tgt_vocab))) < 1.5
    assert parameters_of(preset.model, state.task) == count_parameters(state.model)


def test_initial_weights_come_from_the_generator_alone(tiny):
    task = build_task(tiny.task)
    torch.manual_seed(1)
    first = build_model(tiny.model, task, torch.Generator().manual_seed(7))
    torch.manual_seed(2)
    second = build_model(tiny.model, task, torch.Generator().manual_seed(7))
    other = build_model(tiny.model, task, torch.Generator().manual_seed(8))
    assert_close(dict(first.state_dict()), dict(second.state_dict()), atol=0, rtol=0)
    for name, parameter in first.named_parameters():
        if parameter.dim() > 1:
            assert not torch.equal(parameter, other.get_parameter(name)), name


@pytest.mark.parametrize(("family", "learning_rate"), [("transformer", 0.01), ("gru", 0.02)])
def test_a_tiny_model_overfits_one_small_batch(tiny, tiny_gru, family, learning_rate):
    recurrent = tiny_gru.with_changes({"model.dropout": 0.0, "model.d_hidden": 24})
    state = new_state(recurrent if family == "gru" else tiny)
    batch = state.task.sample(8, split="train", generator=state.generator)
    optimizer = torch.optim.Adam(state.model.parameters(), lr=learning_rate)
    for _ in range(80):
        optimizer.zero_grad()
        loss = sequence_loss(state.model(batch.src, batch.tgt_in), batch.tgt_out)
        loss.backward()
        optimizer.step()
    decoded = generate(state.model.eval(), batch.src, max_steps=batch.tgt_out.shape[1])
    assert loss.item() < 0.02
    assert is_exact(decoded.tokens, batch.tgt_out).all()
