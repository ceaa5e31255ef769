"""Location-sensitive attention equals its equations, and its weights are carried from step to step.

With last-token attention only the output layer reads the source, and without attention nothing after the start.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from core.models import build_model, count_parameters, forward_with_attention, parameters_of
from core.models.additive_attention import LocationSensitiveAttention
from core.models.gru import GRUSeq2Seq
from core.models.hooks import hooks
from core.models.seq2seq import Seq2Seq
from core.tasks import build_task
from tests.support.scripted_models import make_model
from tests.support.scripted_models import unended_sequences as sequences

D, LENGTHS = 8, [7, 4, 1]
SIZES = {"d_embedding": 6, "d_hidden": D, "num_layers": 2, "max_seq_len": 14, "attention_type": "location-sensitive"}
WITHIN = {"atol": 1e-5, "rtol": 0}


@pytest.fixture
def model() -> GRUSeq2Seq:
    """A model whose attention is sharp and depends on the weights before."""
    model = make_model(GRUSeq2Seq, **SIZES).eval()
    with torch.no_grad():
        model.decoder.attention.v.weight *= 8
        model.decoder.attention.w_f.weight *= 4
    return model


def oracle_weights(
    attention: LocationSensitiveAttention, states: torch.Tensor, query: torch.Tensor, before: list[float]
) -> torch.Tensor:
    """Eq. 8 and 9 of Chorowski et al. 2015 sharpened, for one sequence without PAD, one position and tap at a time."""
    count, scores = len(states), []
    for position in range(count):
        total = attention.w_h(states[position]) + query
        for tap, offset in enumerate(range(-3, 4)):
            other = position + offset
            total = total + attention.w_f.weight[:, tap] * (before[other] if 0 <= other < count else -1.0)
        scores.append(attention.v.weight[0] @ total.tanh())
    return (torch.stack(scores) * math.log(count) / math.log(20)).softmax(dim=0)


@torch.no_grad()
def test_weights_equal_the_equations_at_every_step_and_start_from_the_last_token(model):
    attention, src, tgt_in = model.decoder.attention, sequences(LENGTHS, 7), sequences([6] * 3, 6)
    queries: list[torch.Tensor] = []
    with hooks({attention.hook_q.name: queries.append}):
        _, maps = forward_with_attention(model, src, tgt_in)
    memory = model.encode(src)
    for row, length in enumerate(LENGTHS):
        before = [0.0] * (length - 1) + [1.0]
        for step, query in enumerate(queries):
            weights = oracle_weights(attention, memory.states[row, :length], query[row], before)
            assert_close(maps.cross[0, row, 0, step, :length], weights, **WITHIN)
            before = weights.tolist()
        assert (maps.cross[0, row, 0, :, length:] == 0).all()


def test_a_changed_pattern_moves_the_next_step(model):
    src, tgt_in = sequences([7], 7), sequences([4], 4)

    def first_token(pattern: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.zeros(1, 1, 1, dtype=torch.int64), 7).to(pattern)

    _, maps = forward_with_attention(model, src, tgt_in)
    patterns: list[torch.Tensor] = []
    name = model.decoder.attention.hook_pattern.name
    with hooks({name: lambda x: first_token(x) if not patterns else None}), hooks({name: patterns.append}):
        model(src, tgt_in)
    assert patterns[0][0, 0, 0].tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert not torch.allclose(patterns[1], maps.cross[0, :, :, 1:2], atol=1e-3)


def test_only_the_filters_are_added_to_the_parameters(tiny_gru):
    task = build_task(tiny_gru.task)
    config = tiny_gru.with_changes({"model.attention_type": "location-sensitive"}).model
    built: Seq2Seq = build_model(config, task, torch.Generator())
    assert parameters_of(config, task) == parameters_of(tiny_gru.model, task) + 7 * config.d_hidden
    assert count_parameters(built) == parameters_of(config, task)


@pytest.mark.parametrize("cell", ["gru", "lstm", "stack-rnn"])
@torch.no_grad()
def test_with_last_token_attention_only_the_output_layer_reads_the_source(cell):
    model = make_model(GRUSeq2Seq, **SIZES | {"attention_type": "last-token", "cell": cell}).eval()
    src, tgt_in = sequences(LENGTHS, 7), sequences([5], 5).expand(3, -1)
    logits, maps = forward_with_attention(model, src, tgt_in)
    last = torch.tensor(LENGTHS) - 1
    assert torch.equal(maps.cross[0, :, 0], torch.nn.functional.one_hot(last, 7)[:, None].expand(-1, 5, -1).float())
    final = model.encode(src).states[torch.arange(3), last]
    of_source = final @ model.output.weight[:, D:].T
    of_target = logits - of_source[:, None]
    assert_close(of_target, of_target[:1].expand(3, -1, -1), **WITHIN)
    assert of_source.std(dim=0).max() > 1e-3


@pytest.mark.parametrize("cell", ["gru", "lstm", "stack-rnn"])
@torch.no_grad()
def test_without_attention_the_decoder_only_starts_from_the_final_state(cell):
    model = make_model(GRUSeq2Seq, **SIZES | {"attention_type": "none", "cell": cell}).eval()
    assert model.heads == ()
    memory, tgt_in = model.encode(sequences(LENGTHS, 7)), sequences([5, 5, 5], 5)
    logits = model.decode(tgt_in, memory).logits
    assert torch.equal(model.decode(tgt_in, replace(memory, states=torch.randn_like(memory.states))).logits, logits)
    others = model.decode(tgt_in, replace(memory, final=torch.zeros_like(memory.final))).logits
    assert (others - logits).abs().max() > 1e-3
