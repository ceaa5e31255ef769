"""What holds for every strategy and every model: the cache, the batch and the recording change nothing."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import GREEDY, Beam, GenerationResult, Greedy, Sample, Strategy, generate, parse_strategy
from core.models import Seq2Seq
from core.storage.errors import LabError
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import (
    RANDOM_MODELS,
    FixedLogitsModel,
    UncachedModel,
    assert_same_maps_at_valid_steps,
    decoder_inputs,
)

STRATEGIES = {
    "greedy": GREEDY,
    "greedy-penalised": Greedy(repetition_penalty=1.5),
    "beam": Beam(beam_size=4, n_best=3),
    "beam-plain": Beam(beam_size=3, length_penalty=0.0),
    "beam-penalised": Beam(beam_size=5, repetition_penalty=1.5, n_best=2),
    "beam-wider-than-the-vocabulary": Beam(beam_size=20, n_best=20),
    "sample": Sample(seed=3),
    "sample-cut": Sample(seed=3, temperature=1.7, top_k=6, top_p=0.8, repetition_penalty=1.2),
}
STEPS = 8


@pytest.fixture(params=RANDOM_MODELS)
def model(request) -> Seq2Seq:
    return RANDOM_MODELS[request.param]()


@pytest.fixture(params=STRATEGIES)
def strategy(request) -> Strategy:
    return STRATEGIES[request.param]


@pytest.fixture
def src(tiny) -> torch.Tensor:
    """16 sources of 4 to 7 tokens, in one batch."""
    return build_task(tiny.task).sample(16, split="test", generator=torch.Generator().manual_seed(0)).src


def decode_all(model: Seq2Seq, src: torch.Tensor, strategy: Strategy, **settings) -> GenerationResult:
    """With everything there is to record."""
    settings = {"max_steps": STEPS, "num_candidates": 5, "need_weights": True} | settings
    return generate(model, src, strategy=strategy, **settings)


def assert_same_maps(actual: GenerationResult, expected: GenerationResult, *, rows: slice = slice(None)) -> None:
    for name in ("encoder", "decoder", "cross"):
        one, other = getattr(actual.maps, name), getattr(expected.maps, name)
        assert (one is None) == (other is None)
        if one is not None:
            width, height = one.shape[-1], one.shape[-2]
            assert_close(one, other[:, rows, :, :height, :width], atol=1e-5, rtol=0)


def test_the_cache_changes_nothing(model, src, strategy):
    cached, anew = (decode_all(each, src, strategy) for each in (model, UncachedModel(model)))
    assert torch.equal(cached.tokens, anew.tokens)
    assert torch.equal(cached.candidates, anew.candidates)
    assert_close(cached.probabilities, anew.probabilities, atol=1e-5, rtol=0)
    assert_close(cached.log_probs, anew.log_probs, atol=1e-4, rtol=1e-5)
    assert_same_maps(cached, anew)
    assert len(cached.tokens.unique(dim=0)) > 3  # the answers differ: the comparison says something


def test_a_batch_is_decoded_as_one_by_one(model, src, strategy):
    together = decode_all(model, src, strategy)
    lengths = set()
    for row, ids in enumerate(src):
        alone = decode_all(model, ids[ids != PAD_ID][None], strategy)
        steps = alone.tokens.shape[1]
        lengths.add(steps)
        assert torch.equal(alone.tokens[0], together.tokens[row, :steps])
        assert (together.tokens[row, steps:] == PAD_ID).all()
        assert_close(alone.log_probs[0], together.log_probs[row, :steps], atol=1e-4, rtol=1e-5)
        assert (together.log_probs[row, steps:] == 0).all()
        assert torch.equal(alone.candidates[0], together.candidates[row, :steps])
        assert_same_maps(alone, together, rows=slice(row, row + 1))
        if isinstance(strategy, Beam):
            assert_same_search(alone, together, row)
    assert len(lengths) > 1


def assert_same_search(alone: GenerationResult, together: GenerationResult, row: int) -> None:
    one, other = alone.search.hypotheses(0), together.search.hypotheses(row)
    assert [hypothesis.tokens for hypothesis in one] == [hypothesis.tokens for hypothesis in other]
    assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)
    one, other = alone.search.tree(0), together.search.tree(row)
    assert len(one) == len(other)
    for node, twin in zip(one, other, strict=True):
        assert (node.step, node.token, node.parent, node.is_best) == (twin.step, twin.token, twin.parent, twin.is_best)
        assert node.total_log_prob == pytest.approx(twin.total_log_prob, abs=1e-4)


def test_maps_are_those_of_reading_the_very_tokens_that_were_written(model, src, strategy):
    decoded = decode_all(model, src, strategy)
    _, maps = model(src, decoder_inputs(decoded), need_weights=True)
    assert_same_maps_at_valid_steps(decoded, maps)


def test_recording_changes_no_token(model, src, strategy):
    plain, recorded = generate(model, src, max_steps=STEPS, strategy=strategy), decode_all(model, src, strategy)
    assert torch.equal(plain.tokens, recorded.tokens)
    assert_close(plain.log_probs, recorded.log_probs, atol=1e-4, rtol=1e-5)
    assert plain.maps is None
    assert plain.candidates.shape == plain.probabilities.shape == (*plain.tokens.shape, 0)


def test_log_probs_are_those_of_the_tokens_in_the_distributions_shown(model, src, strategy):
    decoded = decode_all(model, src, strategy, num_candidates=13)
    assert_close(decoded.probabilities.sum(-1), torch.ones(decoded.tokens.shape), atol=1e-5, rtol=0)
    assert (decoded.probabilities.diff(dim=-1) <= 0).all()
    shown = (decoded.probabilities * (decoded.candidates == decoded.tokens[..., None])).sum(-1)
    behind_end = (decoded.tokens == EOS_ID).cumsum(1) - (decoded.tokens == EOS_ID).long() > 0
    assert_close(decoded.log_probs.exp(), shown.masked_fill(behind_end, 1.0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("prefix", [[5], [9, 4, 7]])
def test_a_forced_prefix_is_kept_and_recorded_and_counts(model, src, strategy, prefix):
    decoded = decode_all(model, src, strategy, prefix=prefix)
    size = len(prefix)
    assert (decoded.tokens[:, :size] == torch.tensor(prefix)).all()
    assert decoded.tokens.shape[1] > size
    _, maps = model(src, decoder_inputs(decoded), need_weights=True)
    assert_same_maps_at_valid_steps(decoded, maps)
    if strategy.repetition_penalty == 1 and not isinstance(strategy, Sample):
        logits, _ = model(src, decoder_inputs(decoded))
        true = logits[:, :size].log_softmax(-1).gather(2, decoded.tokens[:, :size, None]).squeeze(2)
        assert_close(decoded.log_probs[:, :size], true, atol=1e-4, rtol=1e-5)


def test_forcing_what_was_written_anyway_changes_nothing(model, src, strategy):
    free = decode_all(model, src, strategy, max_steps=4)
    row = next(row for row in range(len(src)) if EOS_ID not in free.tokens[row, :2])
    one = src[row : row + 1, : int((src[row] != PAD_ID).sum())]
    for size in (1, 2):
        forced = decode_all(model, one, strategy, max_steps=4, prefix=free.tokens[row, :size])
        if not isinstance(strategy, Beam):  # a beam that need not keep others' beginnings finds as good or better
            assert torch.equal(forced.tokens[0], free.tokens[row, : forced.tokens.shape[1]])
        else:
            scores = forced.search.scores[0, 0], free.search.scores[row, 0]
            assert scores[0] >= scores[1] - 1e-4


def test_every_source_may_have_a_prefix_of_its_own(model, src, strategy):
    prefix = torch.arange(3, 3 + 4).repeat(8).view(16, 2)
    together = decode_all(model, src, strategy, prefix=prefix)
    assert torch.equal(together.tokens[:, :2], prefix)
    alone = decode_all(model, src[3][src[3] != PAD_ID][None], strategy, prefix=prefix[3])
    assert torch.equal(alone.tokens[0], together.tokens[3, : alone.tokens.shape[1]])


def test_a_prefix_may_be_the_whole_answer_or_as_long_as_allowed(model, src, strategy):
    whole = decode_all(model, src, strategy, prefix=[5, 6, EOS_ID])
    assert whole.tokens.tolist() == [[5, 6, EOS_ID]] * len(src)
    assert whole.stopped.all()
    assert decode_all(model, src, strategy, prefix=[5, 6], max_steps=2).tokens.tolist() == [[5, 6]] * len(src)


@pytest.mark.parametrize(
    ("prefix", "steps", "message"),
    [
        ([5, 6, 7], 2, "prefix has 3 tokens, more than max_steps=2"),
        ([EOS_ID, 5], 4, "prefix continues after EOS"),
        ([], 0, "max_steps=0 must be at least 1"),
    ],
)
def test_a_prefix_or_a_limit_that_cannot_be_kept_is_refused(model, src, prefix, steps, message):
    with pytest.raises(ValueError, match=message):
        generate(model, src, max_steps=steps, prefix=prefix)


@pytest.mark.parametrize("steps", [1, 16])
def test_the_shortest_and_the_longest_answer(model, src, strategy, steps):
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100
    decoded = decode_all(model, src, strategy, max_steps=steps)
    assert decoded.tokens.shape == (len(src), steps)
    assert not decoded.stopped.any()
    assert decoded.maps.cross.shape[-2] == steps


def test_one_more_step_than_the_model_can_write_is_refused(strategy):
    model = RANDOM_MODELS["transformer"]()
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100
    with pytest.raises(ValueError, match="max_seq_len=16"):
        generate(model, torch.tensor([[BOS_ID, 5, EOS_ID]]), max_steps=17, strategy=strategy)


def test_a_source_of_nothing_but_its_frame_and_padding_is_decoded(model, strategy):
    src = torch.tensor([[BOS_ID, EOS_ID, PAD_ID, PAD_ID], [BOS_ID, 5, 6, EOS_ID]])
    decoded = decode_all(model, src, strategy)
    assert decoded.probabilities.isfinite().all()
    assert decoded.log_probs.isfinite().all()
    assert decoded.maps.cross.isfinite().all()
    alone = decode_all(model, src[:1, :2], strategy)
    assert torch.equal(alone.tokens[0], decoded.tokens[0, : alone.tokens.shape[1]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_give_finite_figures(strategy, dtype):
    logits = torch.tensor([-1e4, -1e4, 0.0, 1e4, 1e4 - 64, -1e4], dtype=dtype)
    decoded = decode_all(FixedLogitsModel(lambda past: logits), torch.tensor([[BOS_ID, 5, EOS_ID]]), strategy)
    assert decoded.log_probs.isfinite().all()
    assert decoded.probabilities.isfinite().all()
    assert decoded.probabilities.dtype == decoded.log_probs.dtype == torch.float32
    assert decoded.tokens[0, 0] == 3
    if decoded.search:
        assert all(abs(node.total_log_prob) < torch.inf for node in decoded.search.tree(0))


def test_half_precision_decodes_much_as_full_precision(model, src, strategy):
    full = decode_all(model, src, strategy, max_steps=1)
    half = decode_all(model.to(torch.bfloat16), src, strategy, max_steps=1)
    assert half.log_probs.isfinite().all()
    same = full.tokens == half.tokens
    assert same.float().mean() > 0.7
    assert_close(full.log_probs[same], half.log_probs[same], atol=0.3, rtol=0.1)


def test_the_global_generator_is_left_alone(model, src, strategy):
    before = torch.get_rng_state()
    decode_all(model, src, strategy)
    assert torch.equal(torch.get_rng_state(), before)


# --- the repetition penalty -------------------------------------------------------------------------------------


def test_the_penalty_divides_positive_logits_and_multiplies_negative_ones():
    # Written first: 3 (logit 4). Then 4 / 2 = 2 < 3: written: 4. Then 3 / 2 = 1.5 < 2 (3 again, but penalised no
    # further), and at last 3 again.
    logits = torch.tensor([-9.0, -9.0, -1.0, 4.0, 3.0, 0.5])
    decoded = generate(
        FixedLogitsModel(lambda past: logits),
        torch.tensor([[BOS_ID, 5, EOS_ID]]),
        max_steps=4,
        strategy=Greedy(repetition_penalty=2),
        num_candidates=6,
    )
    assert decoded.tokens.tolist() == [[3, 4, 3, 3]]
    seen = torch.tensor([-9.0, -9.0, -1.0, 2.0, 3.0, 0.5]).softmax(0)
    assert_close(decoded.probabilities[0, 1], seen.sort(descending=True).values)
    both = torch.tensor([-9.0, -9.0, -1.0, 2.0, 1.5, 0.5]).softmax(0)
    assert_close(decoded.probabilities[0, 2], both.sort(descending=True).values)
    assert_close(decoded.log_probs[0, 1], seen[4].log())


def test_the_penalty_lowers_negative_logits_and_counts_forced_tokens():
    logits = torch.tensor([-9.0, -9.0, -9.0, -1.0, -1.5])
    model, src = FixedLogitsModel(lambda past: logits), torch.tensor([[BOS_ID, 5, EOS_ID]])
    penalised = Greedy(repetition_penalty=2)
    assert generate(model, src, max_steps=2, strategy=penalised).tokens.tolist() == [[3, 4]]  # -2 < -1.5
    assert generate(model, src, max_steps=2, strategy=penalised, prefix=[3]).tokens.tolist() == [[3, 4]]
    assert generate(model, src, max_steps=2, prefix=[3]).tokens.tolist() == [[3, 3]]


# --- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "strategy"),
    [
        ({}, Greedy()),
        ({"kind": "greedy", "repetition_penalty": 2}, Greedy(repetition_penalty=2.0)),
        ({"kind": "beam", "beam_size": 8, "n_best": 8}, Beam(beam_size=8, n_best=8)),
        ({"kind": "sample", "temperature": 5, "top_p": 1, "seed": 0}, Sample(temperature=5.0)),
    ],
)
def test_strategies_are_read(document, strategy):
    assert parse_strategy(document) == strategy


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"kind": "best"}, "strategy='best' is not one of greedy, beam, sample"),
        ({"kind": ["beam"]}, "strategy=['beam'] is not one of greedy, beam, sample"),
        ({"kind": "beam", "beam_size": 0}, "beam_size=0 should be greater than or equal to 1"),
        ({"kind": "beam", "beam_size": 33}, "beam_size=33 should be less than or equal to 32"),
        ({"kind": "beam", "beam_size": "4"}, "beam_size='4' should be a valid integer"),
        ({"kind": "beam", "beam_size": 2.0}, "beam_size=2.0 should be a valid integer"),
        ({"kind": "beam", "n_best": 5}, "n_best=5 must not be above beam_size=4"),
        ({"kind": "beam", "n_best": 0}, "n_best=0 should be greater than or equal to 1"),
        ({"kind": "beam", "length_penalty": -0.1}, "length_penalty=-0.1 should be greater than or equal to 0"),
        ({"kind": "sample", "temperature": 0}, "temperature=0 should be greater than or equal to 0.001"),
        ({"kind": "sample", "temperature": 5.1}, "temperature=5.1 should be less than or equal to 5"),
        ({"kind": "sample", "temperature": float("nan")}, "temperature=nan should be a finite number"),
        ({"kind": "sample", "top_k": -1}, "top_k=-1 should be greater than or equal to 0"),
        ({"kind": "sample", "top_p": 0}, "top_p=0 should be greater than 0"),
        ({"kind": "sample", "top_p": 1.01}, "top_p=1.01 should be less than or equal to 1"),
        ({"kind": "sample", "seed": -1}, "seed=-1 should be greater than or equal to 0"),
        ({"repetition_penalty": 0.9}, "repetition_penalty=0.9 should be greater than or equal to 1"),
        ({"beam_size": 4}, "beam_size=4 is not a setting of greedy, which has repetition_penalty"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_named_with_their_rule(document, message):
    with pytest.raises(LabError) as caught:
        parse_strategy(document)
    assert str(caught.value) == message
