"""The GRU model equals PyTorch's GRU and the paper's attention."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from core.evaluation.accuracy import sequence_loss
from core.generation import generate
from core.models import build_model, count_parameters, forward_with_attention, parameters_of
from core.models.additive_attention import AdditiveAttention
from core.models.gru import GRUSeq2Seq
from core.models.hooks import hooks, name_hook_points
from core.tasks import build_task
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, PAD_ID
from tests.support.scripted_models import make_model
from tests.support.scripted_models import unended_sequences as sequences

V, E, D, LAYERS, LONGEST = 13, 6, 8, 2, 12
SIZES = {
    "src_vocab_size": V,
    "tgt_vocab_size": V,
    "d_embedding": E,
    "d_hidden": D,
    "num_layers": LAYERS,
    "max_seq_len": LONGEST,
}
LENGTHS = [5, 9, 1, 3]


@pytest.fixture
def model() -> GRUSeq2Seq:
    return make_model(GRUSeq2Seq, **SIZES).eval()


# --- parity -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def reference_encoder(model: GRUSeq2Seq) -> nn.GRU:
    """PyTorch's stacked GRU with our weights."""
    stacked = nn.GRU(E, D, LAYERS, batch_first=True)
    for number, layer in enumerate(model.encoder.layers):
        for name, weight in layer.named_parameters():
            stacked.get_parameter(name.replace("l0", f"l{number}")).copy_(weight)
    return stacked


def test_the_encoder_equals_pytorchs_stacked_gru_on_packed_sequences(model):
    src = sequences(LENGTHS, max(LENGTHS))
    memory = model.encode(src)
    embedded = model.src_embedding.tokens(src) * math.sqrt(E)
    packed = nn.utils.rnn.pack_padded_sequence(embedded, torch.tensor(LENGTHS), True, enforce_sorted=False)
    outputs, final = reference_encoder(model)(packed)
    outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    real = src != PAD_ID
    assert_close(memory.states[real], outputs[real], atol=1e-6, rtol=0)
    assert_close(memory.final, final, atol=1e-6, rtol=0)


def oracle_cell(cell: nn.GRUCell, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Cho et al. 2014, eq. 5-8, with the reset gate behind the recurrent product, as PyTorch has it."""
    from_x = (cell.weight_ih @ x + cell.bias_ih).chunk(3)
    from_h = (cell.weight_hh @ h + cell.bias_hh).chunk(3)
    reset, update = (from_x[0] + from_h[0]).sigmoid(), (from_x[1] + from_h[1]).sigmoid()
    return (1 - update) * (from_x[2] + reset * from_h[2]).tanh() + update * h


def oracle_logits(model: GRUSeq2Seq, src: torch.Tensor, tgt_in: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence without PAD, one step and one key at a time: logits (T, V) and weights (T, S)."""
    states, hidden = reference_encoder(model)(model.src_embedding.tokens(src) * math.sqrt(E))
    attention, hidden, logits, rows = model.decoder.attention, list(hidden), [], []
    for token in tgt_in:
        scores = [attention.v.weight[0] @ (attention.w_h(h) + attention.w_s(hidden[-1])).tanh() for h in states]
        weights = torch.stack(scores).softmax(dim=0)
        context = sum(weight * h for weight, h in zip(weights, states, strict=True))
        x = torch.cat([model.tgt_embedding.tokens(token) * math.sqrt(E), context])
        for number, cell in enumerate(model.decoder.layers):
            x = hidden[number] = oracle_cell(cell, x, hidden[number])
        logits.append(model.output(x))
        rows.append(weights)
    return torch.stack(logits), torch.stack(rows)


@torch.no_grad()
def test_logits_and_weights_equal_the_equations_one_at_a_time(model):
    src, tgt = sequences(LENGTHS, max(LENGTHS)), sequences([7] * 4, 7)
    logits, maps = forward_with_attention(model, src, tgt)
    for row, length in enumerate(LENGTHS):
        expected, weights = oracle_logits(model, src[row, :length], tgt[row])
        assert_close(logits[row], expected, atol=1e-5, rtol=0)
        assert_close(maps.cross[0, row, 0, :, :length], weights, atol=1e-5, rtol=0)


def test_additive_attention_with_no_key_gives_zeros_and_finite_gradients():
    attention, states = AdditiveAttention(D), torch.randn(2, 4, D, requires_grad=True)
    mask = torch.tensor([[True, True, False, False], [False] * 4])
    name_hook_points(attention)
    patterns: list[torch.Tensor] = []
    with hooks({"hook_pattern": patterns.append}):
        context, _ = attention(torch.randn(2, D), attention.keys_values(states), mask[:, None, None])
    weights = patterns[0][:, 0, 0]
    assert_close(weights.sum(dim=1), torch.tensor([1.0, 0.0]))
    assert (weights[~mask] == 0).all()
    assert (context[1] == 0).all()
    context.sum().backward()
    assert states.grad.isfinite().all()
    assert (states.grad[~mask] == 0).all()


# --- padding ----------------------------------------------------------------------------------------------------


def difference_alone_and_in_a_batch(model: GRUSeq2Seq) -> float:
    """The largest difference between a sequence's states and logits alone and in a batch."""
    src, tgt = sequences(LENGTHS, LONGEST), sequences([7] * 4, 7)
    memory, logits = model.encode(src), model(src, tgt)
    differences = []
    for row, length in enumerate(LENGTHS):
        alone = model.encode(src[row : row + 1, :length])
        differences += [
            alone.states[0] - memory.states[row, :length],
            alone.final[:, 0] - memory.final[:, row],
            model(src[row : row + 1, :length], tgt[row : row + 1])[0] - logits[row],
        ]
    return max(difference.abs().max().item() for difference in differences)


def test_without_mask_padding_the_final_state_depends_on_the_batch():
    model = make_model(GRUSeq2Seq, **SIZES, mask_padding=False).eval()
    assert difference_alone_and_in_a_batch(model) > 1e-2
    src, tgt = sequences([5, 5], 5), sequences([4, 4], 4)
    right = make_model(GRUSeq2Seq, **SIZES).eval()
    right.load_state_dict(model.state_dict())
    assert_close(model(src, tgt), right(src, tgt), atol=0, rtol=0)  # without PAD there is no mistake to make


def test_without_source_eos_the_model_does_what_it_does_with_sources_that_have_none():
    model = make_model(GRUSeq2Seq, **SIZES, source_eos=False).eval()
    whole = make_model(GRUSeq2Seq, **SIZES).eval()
    whole.load_state_dict(model.state_dict())
    src, tgt = sequences(LENGTHS, LONGEST), sequences([7] * 4, 7)
    with_eos = src.clone()
    with_eos[torch.arange(4), torch.tensor(LENGTHS)] = EOS_ID
    logits, maps = forward_with_attention(model, with_eos, tgt)
    expected, weights = forward_with_attention(whole, src, tgt)
    assert_close(logits, expected, atol=1e-6, rtol=0)
    assert_close(maps.cross, weights.cross, atol=1e-6, rtol=0)
    assert not torch.allclose(model(with_eos, tgt), whole(with_eos, tgt), atol=1e-3)


def test_only_cross_attention_is_recorded_and_padding_gets_none(model):
    src, tgt = sequences(LENGTHS, LONGEST), sequences([7] * 4, 7)
    _, maps = forward_with_attention(model, src, tgt)
    assert maps.encoder is None
    assert maps.decoder is None
    assert maps.cross.shape == (1, 4, 1, 7, LONGEST)
    assert not maps.cross.requires_grad
    assert_close(maps.cross.sum(-1), torch.ones(1, 4, 1, 7))
    assert (maps.cross[0, :, 0].transpose(1, 2)[src == PAD_ID] == 0).all()


def test_keys_are_computed_once_per_source(model, monkeypatch):
    calls, keys_values = [], model.decoder.attention.keys_values
    monkeypatch.setattr(
        model.decoder.attention, "keys_values", lambda states: calls.append(states) or keys_values(states)
    )
    generate(model, sequences([6, 4], 6), max_steps=5)
    assert len(calls) == 1


# --- weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_layers", [1, 3])
def test_the_number_of_parameters_follows_the_formula(tiny_gru, num_layers):
    config = tiny_gru.with_changes({"model.num_layers": num_layers}).model
    embedding, hidden, task = config.d_embedding, config.d_hidden, build_task(tiny_gru.task)
    expected = 2 * V * embedding  # both embeddings
    for first in (embedding, embedding + hidden):  # a layer of three gates on each side, then the layers above it
        expected += sum(3 * hidden * (width + hidden + 2) for width in [first, *[hidden] * (num_layers - 1)])
    expected += 2 * hidden**2 + hidden  # W_h, W_s and v
    expected += (hidden + 1) * V  # output projection
    assert parameters_of(config, task) == expected
    assert count_parameters(build_model(config, task, torch.Generator())) == expected


def test_initial_weights_come_from_the_generator_alone_and_recurrent_ones_are_orthogonal(tiny_gru):
    task, models = build_task(tiny_gru.task), []
    for seed in (7, 7, 8):
        torch.manual_seed(len(models))
        models.append(build_model(tiny_gru.model, task, torch.Generator().manual_seed(seed)))
    first, second, other = models
    assert_close(dict(first.state_dict()), dict(second.state_dict()), atol=0, rtol=0)
    for name, parameter in first.named_parameters():
        if "bias" in name:
            assert (parameter == 0).all(), name
            continue
        assert not torch.equal(parameter, other.get_parameter(name)), name
        for gate in parameter.chunk(3) if "weight_hh" in name else ():
            assert_close(gate @ gate.T, torch.eye(len(gate)), atol=1e-5, rtol=0)


def test_initial_loss_is_near_ln_vocab_and_gradients_reach_every_parameter(tiny_gru):
    state = new_state(tiny_gru)
    batch = state.task.sample(32, split="train", generator=state.generator)
    loss = sequence_loss(state.model(batch.src, batch.tgt_in), batch.tgt_out)
    loss.backward()
    assert abs(loss.item() - math.log(V)) < 0.5
    for name, parameter in state.model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-8, name


def test_dropout_draws_from_its_own_generator_only_and_is_off_in_evaluation():
    src, tgt = sequences([5, 3], 5), sequences([4, 4], 4)
    first, second, other = (
        make_model(GRUSeq2Seq, **SIZES, dropout=0.3, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    )
    for model in (second, other):
        model.load_state_dict(first.state_dict())
    before = torch.get_rng_state()
    logits = first(src, tgt)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(second(src, tgt), logits)
    assert not torch.equal(other(src, tgt), logits)
    assert_close(first.eval()(src, tgt), second.eval()(src, tgt), atol=0, rtol=0)
    assert_close(first(src, tgt), first(src, tgt), atol=0, rtol=0)
