"""Drawn tokens have the distribution asked for, and the same draws come again where they must."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from core.generation import Sample, generate
from core.generation.sampling import sample_token, sampling_log_probs, sampling_noise
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import RANDOM_MODELS, FixedLogitsModel

KNOWN = torch.tensor([0.02, 0.08, 0.0, 0.3, 0.4, 0.15, 0.05])


@pytest.fixture
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(16, split="test", generator=torch.Generator().manual_seed(0)).src


def different_sources(count: int) -> torch.Tensor:
    """(count, 5) int64 sources, each of which gets draws of its own."""
    digits = torch.arange(count)
    return torch.stack([torch.full_like(digits, BOS_ID), 3 + digits % 97, 3 + digits // 97, digits * 0 + EOS_ID], 1)


def frequencies(strategy: Sample, *, count: int = 4_000) -> torch.Tensor:
    """(V,) share of each token among the first two tokens a model of KNOWN writes for many sources."""
    logits = KNOWN.log().clamp(min=-1e4)
    model = FixedLogitsModel(lambda past: logits)
    tokens = generate(model, different_sources(count), max_steps=2, strategy=strategy).tokens
    return tokens.flatten().bincount(minlength=len(KNOWN)) / tokens.numel()


@pytest.mark.parametrize("family", RANDOM_MODELS)
def test_a_seed_gives_the_same_again_and_another_something_else(src, family):
    model = RANDOM_MODELS[family]()
    first, again, other = (generate(model, src, max_steps=8, strategy=Sample(seed=seed)).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first[:, :2], other[:, :2])


def test_the_draws_of_a_source_depend_on_nothing_but_itself_and_the_seed(src):
    draws = sampling_noise(src, 7, 20)
    assert torch.equal(sampling_noise(src.flip(0), 7, 20), draws.flip(0))
    assert torch.equal(sampling_noise(torch.nn.functional.pad(src, (0, 3)), 7, 20), draws)
    assert torch.equal(sampling_noise(src, 7, 5), draws[:, :5])
    assert len(draws.unique()) == 20 * len(src.unique(dim=0))
    assert not torch.equal(sampling_noise(src, 8, 20), draws)
    assert ((draws >= 0) & (draws < 1)).all()


def test_draws_are_even_over_sources_steps_and_seeds():
    over_sources = sampling_noise(different_sources(4_000), 0, 2)
    over_seeds = torch.cat([sampling_noise(different_sources(1), seed, 2) for seed in range(4_000)])
    for draws in (over_sources, over_seeds):
        shares = torch.histc(draws[:, 0].float(), bins=10, min=0, max=1) / 4_000
        assert_close(shares, torch.full((10,), 0.1), atol=0.02, rtol=0)
        assert abs(torch.corrcoef(draws.T)[0, 1]) < 0.05


def test_tokens_come_as_often_as_they_are_likely():
    assert_close(frequencies(Sample()), KNOWN, atol=0.02, rtol=0)
    flat = KNOWN.sqrt() / KNOWN.sqrt().sum()
    assert_close(frequencies(Sample(temperature=2.0)), flat, atol=0.02, rtol=0)
    two = torch.tensor([0.0, 0, 0, 3 / 7, 4 / 7, 0, 0])
    assert_close(frequencies(Sample(top_k=2)), two, atol=0.02, rtol=0)
    assert_close(frequencies(Sample(top_p=0.65)), two, atol=0.02, rtol=0)


def test_the_tokens_of_a_sequence_are_drawn_independently():
    model = FixedLogitsModel(lambda past: torch.tensor([-50.0, -50, -50, 0, 0]))
    tokens = generate(model, different_sources(4_000), max_steps=3, strategy=Sample()).tokens.double()
    assert (torch.corrcoef(tokens.T) - torch.eye(3)).abs().max() < 0.05


@pytest.mark.parametrize("family", RANDOM_MODELS)
@pytest.mark.parametrize(
    "strategy", [Sample(temperature=0.001), Sample(top_k=1), Sample(top_p=1e-9), Sample(top_k=1, temperature=5.0)]
)
def test_sampling_without_chance_is_greedy(src, family, strategy):
    model = RANDOM_MODELS[family]()
    assert torch.equal(
        generate(model, src, max_steps=8, strategy=strategy).tokens, generate(model, src, max_steps=8).tokens
    )


def test_of_equally_likely_tokens_no_more_than_top_k_are_kept():
    log_probs = sampling_log_probs(torch.zeros(1, 6), Sample(top_k=2))
    assert log_probs.exp().tolist() == [[0.5, 0.5, 0, 0, 0, 0]]


@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=12),
    st.sampled_from([0.1, 0.37, 0.5, 0.81, 0.99]),
    st.integers(0, 12),
)
def test_top_p_keeps_the_smallest_set_of_the_likeliest(logits, top_p, top_k):
    logits = torch.tensor(logits)[None]
    kept = sampling_log_probs(logits, Sample(top_p=top_p, top_k=top_k))[0] > -torch.inf
    probabilities = sampling_log_probs(logits, Sample(top_k=top_k))[0].double().exp()
    mass = probabilities[kept].sum()
    assert mass >= top_p - 1e-6
    assert mass - probabilities[kept].min() < top_p + 1e-6
    assert not (~kept).any() or probabilities[~kept].max() <= probabilities[kept].min()


def test_the_distribution_shown_is_the_one_that_was_drawn_from(src):
    model = RANDOM_MODELS["transformer"]()
    strategy = Sample(temperature=2.0, top_k=3)
    decoded = generate(model, src, max_steps=1, strategy=strategy, num_candidates=5)
    logits, _ = model(src, torch.full((len(src), 1), BOS_ID))
    expected = (logits[:, 0].topk(3).values / 2).softmax(-1)
    assert_close(decoded.probabilities[:, 0, :3], expected, atol=1e-6, rtol=1e-5)
    assert (decoded.probabilities[:, 0, 3:] == 0).all()
    drawn = decoded.candidates[:, 0] == decoded.tokens
    assert_close(decoded.log_probs.exp(), (decoded.probabilities[:, 0] * drawn).sum(1, keepdim=True))


def test_a_forced_token_that_was_cut_off_has_no_probability():
    logits = torch.tensor([0.0, 0, 0, 5, 4, 3])
    model = FixedLogitsModel(lambda past: logits)
    decoded = generate(model, different_sources(1), max_steps=2, strategy=Sample(top_k=1), prefix=[5])
    assert decoded.tokens.tolist() == [[5, 3]]
    assert decoded.log_probs.tolist() == [[-torch.inf, 0.0]]


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_a_token_of_probability_zero_is_never_drawn(number):
    for shares in ([0, 1, 0], [0.5, 0, 0.5], [0, 0, 1], [1, 0, 0], [0, 0.3, 0.7, 0]):
        log_probs = torch.tensor([shares]).log()
        token = sample_token(log_probs, torch.tensor([number], dtype=torch.float64))
        assert shares[token] > 0


def test_draws_follow_the_order_of_ids():
    log_probs = torch.tensor([[0.25, 0.25, 0.5]]).log().expand(4, 3)
    assert sample_token(log_probs, torch.tensor([0.1, 0.3, 0.51, 0.99]).double()).tolist() == [0, 1, 2, 2]


def test_padding_of_a_source_does_not_change_what_is_drawn():
    model = RANDOM_MODELS["transformer"]()
    row = torch.tensor([[BOS_ID, 5, 6, EOS_ID]])
    padded = torch.nn.functional.pad(row, (0, 4), value=PAD_ID)
    alone, with_padding = (generate(model, each, max_steps=8, strategy=Sample(seed=5)).tokens for each in (row, padded))
    assert torch.equal(alone, with_padding)
