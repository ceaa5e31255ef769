"""Greedy decoding equals its textbook definition, and records the attention of the actual steps."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import generate
from core.models.transformer import Transformer
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import random_sequences, transformer

LAYERS, HEADS = 2, 2


@pytest.fixture
def model() -> Transformer:
    """A random model with outputs of 1 to 16 tokens that depend on the source."""
    model = transformer()
    with torch.no_grad():
        model.output.weight *= 3 / 4.5
        model.output.bias[EOS_ID] += 1
    return model


@pytest.fixture
def src() -> torch.Tensor:
    return random_sequences([7, 4, 6, 5, 7, 6, 3, 5, 4, 7, 6, 5])


def greedy_by_definition(model: Transformer, row: torch.Tensor, max_steps: int) -> list[int]:
    """Decode one source without batch, padding or cache: a full forward pass per token."""
    tokens = [BOS_ID]
    while len(tokens) <= max_steps and tokens[-1] != EOS_ID:
        logits = model(row[row != PAD_ID][None], torch.tensor([tokens]))
        tokens.append(logits[0, -1].argmax().item())
    return tokens[1:]


def test_tokens_are_those_of_a_full_forward_pass_per_step(model, src):
    result = generate(model, src, max_steps=8)
    lengths = set()
    for row, tokens in zip(src, result.tokens.tolist(), strict=True):
        expected = greedy_by_definition(model, row, 8)
        lengths.add(len(expected))
        assert tokens == expected + [PAD_ID] * (len(tokens) - len(expected))
    assert len(lengths) > 2  # some outputs end early, so the comparison covers EOS


def test_pad_follows_eos_and_stopped_says_which_sequences_ended(scripted):
    answers = torch.tensor([[5, EOS_ID, 7, 8, 9], [5, 6, 7, EOS_ID, 4], [5, 6, 7, 8, 9]])
    result = generate(scripted(lambda src: answers[src[:, 0]]), torch.arange(3)[:, None], max_steps=5)
    assert result.tokens.tolist() == [[5, EOS_ID, 0, 0, 0], [5, 6, 7, EOS_ID, 0], [5, 6, 7, 8, 9]]
    assert result.stopped.tolist() == [True, True, False]


def test_decoding_stops_when_all_sequences_have_ended(scripted):
    answers = torch.tensor([[5, EOS_ID, 7, 8], [EOS_ID, 6, 7, 8]])
    result = generate(scripted(lambda src: answers[src[:, 0]]), torch.arange(2)[:, None], max_steps=4)
    assert result.tokens.tolist() == [[5, EOS_ID], [EOS_ID, PAD_ID]]


def test_candidates_are_sorted_with_the_model_s_probabilities(model, src):
    result = generate(model, src, max_steps=6, num_candidates=5)
    steps = result.tokens.shape[1]
    assert result.candidates.shape == result.probabilities.shape == (len(src), steps, 5)
    assert (result.probabilities.diff(dim=-1) <= 0).all()
    assert (result.probabilities.sum(-1) <= 1 + 1e-6).all()
    is_token = result.tokens != PAD_ID
    assert torch.equal(result.candidates[..., 0][is_token], result.tokens[is_token])
    first = model(src, torch.full((len(src), 1), BOS_ID))[:, 0].softmax(-1)
    assert_close(result.probabilities[:, 0], first.gather(1, result.candidates[:, 0]), atol=1e-6, rtol=0)


def test_candidates_are_limited_to_the_vocabulary(model, src):
    result = generate(model, src[:2], max_steps=2, num_candidates=99)
    assert result.candidates.shape[-1] == 13
    assert_close(result.probabilities.sum(-1), torch.ones(result.tokens.shape), atol=1e-5, rtol=0)


def test_map_rows_are_distributions_without_future_and_padding(model, src):
    result = generate(model, src, max_steps=8, need_weights=True)
    batch, source_length, steps = len(src), src.shape[1], result.tokens.shape[1]
    maps = result.maps
    assert maps.encoder.shape == (LAYERS, batch, HEADS, source_length, source_length)
    assert maps.decoder.shape == (LAYERS, batch, HEADS, steps, steps)
    assert maps.cross.shape == (LAYERS, batch, HEADS, steps, source_length)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)
    assert (maps.decoder.triu(1) == 0).all()
    assert (maps.cross.masked_select((src == PAD_ID)[None, :, None, None, :].expand_as(maps.cross)) == 0).all()


def test_a_model_without_attention_has_empty_maps(scripted):
    model = scripted(lambda _: torch.tensor([[5, EOS_ID]]))
    maps = generate(model, torch.ones(1, 3, dtype=torch.int64), max_steps=2, need_weights=True).maps
    assert (maps.encoder, maps.decoder, maps.cross) == (None, None, None)


def test_results_carry_no_gradients(model, src):
    result = generate(model, src, max_steps=3, need_weights=True)
    assert not result.probabilities.requires_grad
    assert not result.maps.cross.requires_grad
    assert torch.is_grad_enabled()
