"""Models of one stack decode like the others.

In a decoder-only model PAD is between its sources and targets; an encoder-only model scores its source's positions.
"""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from core.generation import GREEDY, Beam, Sample, generate
from core.models import forward_with_attention
from core.models.decoder_only import DecoderOnly
from core.models.encoder_only import EncoderOnly
from core.tasks import build_task
from core.text.vocab import EOS_ID, PAD_ID
from tests.support.scripted_models import (
    UncachedModel,
    assert_same_maps_at_valid_steps,
    decoder_inputs,
    decoder_only,
    encoder_only,
)

STEPS = 8
STRATEGIES = (GREEDY, Beam(beam_size=3), Sample(temperature=1.5, seed=3))


POSITIONS = ("sinusoidal", "alibi", "rope", "vo-rope")


@pytest.fixture(params=POSITIONS)
def model(request) -> DecoderOnly:
    """A random model with outputs that depend on the source and differ in length."""
    return decoder_only(positions=request.param)


@pytest.fixture(params=[*(partial(decoder_only, positions=each) for each in POSITIONS), encoder_only])
def any_model(request) -> DecoderOnly | EncoderOnly:
    """The same, or an encoder-only one."""
    return request.param()


@pytest.fixture
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(8, split="test", generator=torch.Generator().manual_seed(0)).src


def test_decoding_is_independent_of_cache_and_batch(any_model, src):
    model = any_model
    for strategy in STRATEGIES:
        together = generate(model, src, max_steps=STEPS, strategy=strategy)
        uncached = generate(UncachedModel(model), src, max_steps=STEPS, strategy=strategy)
        assert torch.equal(together.tokens, uncached.tokens)
        assert_close(together.log_probs, uncached.log_probs, atol=1e-4, rtol=1e-5)
        for row, ids in enumerate(src):
            alone = generate(model, ids[ids != PAD_ID][None], max_steps=STEPS, strategy=strategy)
            steps = alone.tokens.shape[1]
            assert torch.equal(alone.tokens[0], together.tokens[row, :steps])
            assert (together.tokens[row, steps:] == PAD_ID).all()
        assert len({tuple(row) for row in together.tokens.tolist()}) > 3


def test_recorded_maps_equal_those_of_teacher_forcing(model, src):
    for strategy in STRATEGIES:
        decoded = generate(model, src, max_steps=STEPS, strategy=strategy, need_weights=True)
        _, maps = forward_with_attention(model, src, decoder_inputs(decoded))
        assert decoded.maps.cross is None
        assert_same_maps_at_valid_steps(decoded, maps)
        over_source = decoded.maps.over_source(src.shape[1])
        assert over_source.shape[-1] == src.shape[1]
        padded = (src == PAD_ID)[None, :, None, None, :]
        assert not (over_source * padded).any()


def test_an_output_may_be_empty(model):
    with torch.no_grad():
        model.output.bias[EOS_ID] = 100
    decoded = generate(model, torch.tensor([[1, 5, 6, EOS_ID]]), max_steps=STEPS)
    assert decoded.tokens.tolist() == [[EOS_ID]]
