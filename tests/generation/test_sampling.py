"""Sampling follows the requested distribution, and the same seed gives the same output in any batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from core.generation import Sample, generate
from core.generation.sampling import sample_token, sampling_log_probs, sampling_noise
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID
from tests.support.scripted_models import RANDOM_MODELS, FixedLogitsModel

DISTRIBUTION = torch.tensor([0.02, 0.08, 0.0, 0.3, 0.4, 0.15, 0.05])


@pytest.fixture(scope="module")
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(16, split="test", generator=torch.Generator().manual_seed(0)).src


def distinct_sources(count: int) -> torch.Tensor:
    """(count, 4) int64 sources, each with its own random numbers."""
    index = torch.arange(count)
    return torch.stack([torch.full_like(index, BOS_ID), 3 + index % 97, 3 + index // 97, index * 0 + EOS_ID], 1)


def frequencies(strategy: Sample, *, count: int = 4_000) -> torch.Tensor:
    """(V,) frequency of each token among the first two tokens generated for many sources."""
    logits = DISTRIBUTION.log().clamp(min=-1e4)
    model = FixedLogitsModel(lambda past: logits)
    tokens = generate(model, distinct_sources(count), max_steps=2, strategy=strategy).tokens
    return tokens.flatten().bincount(minlength=len(DISTRIBUTION)) / tokens.numel()


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_a_seed_is_reproducible_and_another_differs(src, family):
    model = RANDOM_MODELS[family]()
    first, again, other = (generate(model, src, max_steps=8, strategy=Sample(seed=seed)).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first[:, :2], other[:, :2])


def test_noise_depends_only_on_the_source_and_the_seed(src):
    noise = sampling_noise(src, 7, 20)
    assert torch.equal(sampling_noise(src.flip(0), 7, 20), noise.flip(0))
    assert torch.equal(sampling_noise(torch.nn.functional.pad(src, (0, 3)), 7, 20), noise)
    assert torch.equal(sampling_noise(src, 7, 5), noise[:, :5])
    assert len(noise.unique()) == 20 * len(src.unique(dim=0))
    assert not torch.equal(sampling_noise(src, 8, 20), noise)
    assert ((noise >= 0) & (noise < 1)).all()


def test_noise_is_uniform_over_sources_steps_and_seeds():
    over_sources = sampling_noise(distinct_sources(4_000), 0, 2)
    over_seeds = torch.cat([sampling_noise(distinct_sources(1), seed, 2) for seed in range(4_000)])
    for noise in (over_sources, over_seeds):
        frequency = torch.histc(noise[:, 0].float(), bins=10, min=0, max=1) / 4_000
        assert_close(frequency, torch.full((10,), 0.1), atol=0.02, rtol=0)
        assert abs(torch.corrcoef(noise.T)[0, 1]) < 0.05


def test_token_frequencies_match_the_distribution():
    assert_close(frequencies(Sample()), DISTRIBUTION, atol=0.02, rtol=0)
    flat = DISTRIBUTION.sqrt() / DISTRIBUTION.sqrt().sum()
    assert_close(frequencies(Sample(temperature=2.0)), flat, atol=0.02, rtol=0)
    top_two = torch.tensor([0.0, 0, 0, 3 / 7, 4 / 7, 0, 0])
    assert_close(frequencies(Sample(top_k=2)), top_two, atol=0.02, rtol=0)
    assert_close(frequencies(Sample(top_p=0.65)), top_two, atol=0.02, rtol=0)


def test_the_tokens_of_a_sequence_are_sampled_independently():
    model = FixedLogitsModel(lambda past: torch.tensor([-50.0, -50, -50, 0, 0]))
    tokens = generate(model, distinct_sources(4_000), max_steps=3, strategy=Sample()).tokens.double()
    assert (torch.corrcoef(tokens.T) - torch.eye(3)).abs().max() < 0.05


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_sampling_from_one_token_is_greedy_decoding(src, family):
    model = RANDOM_MODELS[family]()
    greedy = generate(model, src, max_steps=8).tokens
    for strategy in (Sample(temperature=0.001), Sample(top_k=1), Sample(top_p=1e-9), Sample(top_k=1, temperature=5.0)):
        assert torch.equal(generate(model, src, max_steps=8, strategy=strategy).tokens, greedy)


def test_top_k_keeps_exactly_k_of_equally_likely_tokens():
    log_probs = sampling_log_probs(torch.zeros(1, 6), Sample(top_k=2))
    assert log_probs.exp().tolist() == [[0.5, 0.5, 0, 0, 0, 0]]


@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=12),
    st.sampled_from([0.1, 0.37, 0.5, 0.81, 0.99]),
    st.integers(0, 12),
)
def test_top_p_keeps_the_smallest_set_with_enough_mass(logits, top_p, top_k):
    logits = torch.tensor(logits)[None]
    is_kept = sampling_log_probs(logits, Sample(top_p=top_p, top_k=top_k))[0] > -torch.inf
    probabilities = sampling_log_probs(logits, Sample(top_k=top_k))[0].double().exp()
    mass = probabilities[is_kept].sum()
    assert mass >= top_p - 1e-6
    assert mass - probabilities[is_kept].min() < top_p + 1e-6
    assert not (~is_kept).any() or probabilities[~is_kept].max() <= probabilities[is_kept].min()


def test_returned_probabilities_are_those_sampled_from(src):
    model = RANDOM_MODELS["transformer"]()
    strategy = Sample(temperature=2.0, top_k=3)
    result = generate(model, src, max_steps=1, strategy=strategy, num_candidates=5)
    first_step = generate(model, src, max_steps=1, num_candidates=3)
    expected = (first_step.probabilities[:, 0].log() / 2).softmax(-1)
    assert_close(result.probabilities[:, 0, :3], expected, atol=1e-6, rtol=1e-5)
    assert (result.probabilities[:, 0, 3:] == 0).all()
    is_sampled = result.candidates[:, 0] == result.tokens
    assert_close(result.log_probs.exp(), (result.probabilities[:, 0] * is_sampled).sum(1, keepdim=True))


def test_a_forced_token_outside_top_k_has_probability_zero():
    logits = torch.tensor([0.0, 0, 0, 5, 4, 3])
    model = FixedLogitsModel(lambda past: logits)
    result = generate(model, distinct_sources(1), max_steps=2, strategy=Sample(top_k=1), prefix=[5])
    assert result.tokens.tolist() == [[5, 3]]
    assert result.log_probs.tolist() == [[-torch.inf, 0.0]]


@pytest.mark.parametrize("noise", [0.0, 0.5, 1 - 2**-53])
def test_a_token_of_probability_zero_is_never_sampled(noise):
    for probabilities in ([0, 1, 0], [0.5, 0, 0.5], [0, 0, 1], [1, 0, 0], [0, 0.3, 0.7, 0]):
        log_probs = torch.tensor([probabilities]).log()
        token = sample_token(log_probs, torch.tensor([noise], dtype=torch.float64))
        assert probabilities[token] > 0


def test_the_inverse_distribution_function_follows_token_ids():
    log_probs = torch.tensor([[0.25, 0.25, 0.5]]).log().expand(4, 3)
    assert sample_token(log_probs, torch.tensor([0.1, 0.3, 0.51, 0.99]).double()).tolist() == [0, 1, 2, 2]
