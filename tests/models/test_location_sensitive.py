"""Location-sensitive attention equals its equations, is independent of padding, and is carried from step to step."""

import math

import pytest
import torch
from torch.testing import assert_close

from core.config.preset import ConfigError
from core.generation import Beam, generate
from core.models import build_model, count_parameters, forward_with_attention, parameters_of
from core.models.additive_attention import LocationSensitiveAttention
from core.models.gru import GRUSeq2Seq
from core.models.hooks import hooks
from core.models.seq2seq import Seq2Seq
from core.tasks import build_task
from core.text.vocab import PAD_ID
from tests.support.scripted_models import UncachedModel, make_model
from tests.support.scripted_models import unended_sequences as sequences

D, LENGTHS = 8, [7, 4, 1]
SIZES = {"d_embedding": 6, "d_hidden": D, "num_layers": 2, "max_seq_len": 14, "attention_type": "location-sensitive"}
WITHIN = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(params=[{}, {"location_window": 2, "output_context": True}], ids=["everywhere", "in a window"])
def model(request) -> GRUSeq2Seq:
    """A model whose attention is sharp and depends on the weights before."""
    model = make_model(GRUSeq2Seq, **SIZES, **request.param).eval()
    with torch.no_grad():
        model.decoder.attention.v.weight *= 8
        model.decoder.attention.w_f.weight *= 4
    return model


def oracle_weights(
    attention: LocationSensitiveAttention, states: torch.Tensor, query: torch.Tensor, before: list[float]
) -> torch.Tensor:
    """Eq. 8 and 9 of Chorowski et al. 2015 sharpened, for one sequence without PAD, one position and tap at a time."""
    count, scores = len(states), []
    center = max(range(count), key=lambda position: before[position])
    for position in range(count):
        total = attention.w_h(states[position]) + query
        for tap, offset in enumerate(range(-3, 4)):
            other = position + offset
            total = total + attention.w_f.weight[:, tap] * (before[other] if 0 <= other < count else -1.0)
        is_near = not attention.window or abs(position - center) <= attention.window
        scores.append(attention.v.weight[0] @ total.tanh() if is_near else torch.tensor(-torch.inf))
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


def test_the_window_moves_with_the_attention():
    model = make_model(GRUSeq2Seq, **SIZES, location_window=1).eval()
    with torch.no_grad():
        _, maps = forward_with_attention(model, sequences([9], 9), sequences([8], 8))
    rows = maps.cross[0, 0, 0]
    centers = [8, *rows.argmax(dim=1).tolist()]
    for row, center in zip(rows, centers, strict=False):
        assert set(row.nonzero().flatten().tolist()) == {at for at in range(center - 1, center + 2) if at < 9}


def test_steps_with_the_cache_equal_one_call(model):
    src, tgt_in = sequences(LENGTHS, 7), sequences([9] * 3, 9)
    logits, maps = forward_with_attention(model, src, tgt_in)
    memory, cache, parts = model.encode(src), None, []
    for tokens in tgt_in.split([1, 4, 1, 3], dim=1):
        step = model.decode(tokens, memory, cache)
        cache = step.cache
        parts.append(step.logits)
    assert_close(torch.cat(parts, dim=1), logits, **WITHIN)
    assert_close(cache.weights, maps.cross[0, :, 0, -1], **WITHIN)


def test_logits_and_attention_are_independent_of_the_batch(model):
    src, tgt_in = sequences(LENGTHS, 9), sequences([5] * 3, 5)
    logits, maps = forward_with_attention(model, src, tgt_in)
    for row, length in enumerate(LENGTHS):
        alone, own = forward_with_attention(model, src[row : row + 1, :length], tgt_in[row : row + 1])
        assert_close(alone[0], logits[row], **WITHIN)
        assert_close(own.cross[0, 0], maps.cross[0, row, ..., :length], **WITHIN)


def test_beam_search_reorders_the_weights_of_the_step_before(model):
    with torch.no_grad():
        model.output.weight *= 8
        model.output.bias[PAD_ID] = -100
    src = sequences([7, 4, 5], 7)
    found, expected = (
        generate(each, src, max_steps=8, strategy=Beam(beam_size=3, n_best=2)).search
        for each in (model, UncachedModel(model))
    )
    assert torch.equal(found.tokens, expected.tokens)
    assert_close(found.log_probs, expected.log_probs, **WITHIN)


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


def test_a_source_of_nothing_but_padding_gives_finite_logits_and_gradients(model):
    logits = model(torch.zeros(2, 4, dtype=torch.int64), sequences([3, 3], 3))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


def test_only_the_filters_are_added_to_the_parameters(tiny_gru):
    task = build_task(tiny_gru.task)
    config = tiny_gru.with_changes({"model.attention_type": "location-sensitive"}).model
    built: Seq2Seq = build_model(config, task, torch.Generator())
    assert parameters_of(config, task) == parameters_of(tiny_gru.model, task) + 7 * config.d_hidden
    assert count_parameters(built) == parameters_of(config, task)


@torch.no_grad()
def test_the_output_layer_reads_the_state_and_its_context():
    model = make_model(GRUSeq2Seq, **SIZES | {"attention_type": "additive"}, output_context=True).eval()
    src, tgt_in = sequences(LENGTHS, 7), sequences([5] * 3, 5)
    states: list[torch.Tensor] = []
    contexts: list[torch.Tensor] = []
    decoder = model.decoder
    with hooks({decoder.hook_state.name: states.append, decoder.attention.hook_z.name: contexts.append}):
        logits = model(src, tgt_in)
    pairs = zip(states, contexts, strict=True)
    read = torch.stack([torch.cat([state[-1], context[:, 0, 0]], dim=1) for state, context in pairs], dim=1)
    assert model.output.in_features == 2 * D
    assert_close(logits, model.output(read), **WITHIN)


def test_a_window_needs_location_sensitive_attention(tiny_gru):
    with pytest.raises(ConfigError, match=r"location_window=3 must be 0 with model\.attention_type='additive'"):
        tiny_gru.with_changes({"model.location_window": 3})
