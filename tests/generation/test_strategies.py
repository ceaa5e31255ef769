"""All strategies: results are independent of cache, batch and recording; prefixes; edge cases; settings."""

from copy import deepcopy
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from core.generation import GREEDY, Beam, GenerationResult, Greedy, Sample, Strategy, generate, parse_strategy
from core.models import AttentionMaps, Seq2Seq, forward_with_attention
from core.storage.errors import LabError
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import (
    RANDOM_MODELS,
    FixedLogitsModel,
    UncachedModel,
    assert_same_maps_at_valid_steps,
    decoder_inputs,
    valid_steps,
)

STRATEGIES = {
    "greedy": GREEDY,
    "beam": Beam(beam_size=4, n_best=3),
    "beam-penalty": Beam(beam_size=5, length_penalty=0.0, repetition_penalty=1.5, n_best=2),
    "beam-wider-than-vocabulary": Beam(beam_size=15, n_best=15),
    "sample": Sample(seed=3),
    "sample-truncated": Sample(seed=3, temperature=1.7, top_k=6, top_p=0.8, repetition_penalty=1.2),
}
STEPS, VOCAB_SIZE = 8, 13


@dataclass(frozen=True)
class Case:
    """A model and a strategy, with the recorded result for a batch of sources."""

    model: Seq2Seq
    strategy: Strategy
    src: torch.Tensor
    result: GenerationResult

    def generate(self, src: torch.Tensor, **settings) -> GenerationResult:
        return generate_recorded(self.model, src, self.strategy, **settings)

    def alone(self, row: int) -> torch.Tensor:
        """One source without padding, (1, S)."""
        return self.src[row][self.src[row] != PAD_ID][None]


def generate_recorded(model: Seq2Seq, src: torch.Tensor, strategy: Strategy, **settings) -> GenerationResult:
    """Generate with attention maps and all candidates."""
    settings = {"max_steps": STEPS, "num_candidates": VOCAB_SIZE, "need_weights": True} | settings
    return generate(model, src, strategy=strategy, **settings)


def teacher_forced_maps(model: Seq2Seq, src: torch.Tensor, result: GenerationResult) -> AttentionMaps:
    """The maps of one forward pass over what the model generated."""
    return forward_with_attention(model, src, decoder_inputs(result))[1]


@pytest.fixture(scope="module", params=product(RANDOM_MODELS, STRATEGIES), ids="-".join)
def case(request, tiny) -> Case:
    torch.set_num_threads(1)
    family, strategy = request.param
    src = build_task(tiny.task).sample(12, split="test", generator=torch.Generator().manual_seed(0)).src
    model = RANDOM_MODELS[family]()
    return Case(model, STRATEGIES[strategy], src, generate_recorded(model, src, STRATEGIES[strategy]))


@pytest.fixture
def endless(case) -> Case:
    """The case with a model that never ends an output."""
    model = deepcopy(case.model)
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100
    return Case(model, case.strategy, case.src, case.result)


def test_decoding_without_a_cache_gives_the_same_result(case):
    uncached = generate_recorded(UncachedModel(case.model), case.src, case.strategy)
    assert torch.equal(case.result.tokens, uncached.tokens)
    assert torch.equal(case.result.candidates, uncached.candidates)
    assert_close(case.result.probabilities, uncached.probabilities, atol=1e-5, rtol=0)
    assert_close(case.result.log_probs, uncached.log_probs, atol=1e-4, rtol=1e-5)
    assert len(case.result.tokens.unique(dim=0)) > 3  # the outputs differ, so the comparison is meaningful


def test_results_are_independent_of_the_batch(case):
    batched, lengths = case.result, set()
    for row in range(8):
        alone = case.generate(case.alone(row))
        steps = alone.tokens.shape[1]
        lengths.add(steps)
        assert torch.equal(alone.tokens[0], batched.tokens[row, :steps])
        assert (batched.tokens[row, steps:] == PAD_ID).all()
        assert_close(alone.log_probs[0], batched.log_probs[row, :steps], atol=1e-4, rtol=1e-5)
        assert (batched.log_probs[row, steps:] == 0).all()
        assert torch.equal(alone.candidates[0], batched.candidates[row, :steps])
        assert_same_maps(alone.maps, batched.maps, rows=slice(row, row + 1))
        if isinstance(case.strategy, Beam):
            assert_same_search(alone, batched, row)
    assert len(lengths) > 1


def assert_same_maps(actual: AttentionMaps, expected: AttentionMaps, *, rows: slice = slice(None)) -> None:
    for block in ("encoder", "decoder", "cross"):
        one, other = getattr(actual, block), getattr(expected, block)
        assert (one is None) == (other is None)
        if one is not None:
            width, height = one.shape[-1], one.shape[-2]
            assert_close(one, other[:, rows, :, :height, :width], atol=1e-5, rtol=0)


def assert_same_search(alone: GenerationResult, batched: GenerationResult, row: int) -> None:
    one, other = alone.search.hypotheses(0), batched.search.hypotheses(row)
    assert [hypothesis.tokens for hypothesis in one] == [hypothesis.tokens for hypothesis in other]
    assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)
    one, other = alone.search.tree(0), batched.search.tree(row)
    assert len(one) == len(other)
    for node, twin in zip(one, other, strict=True):
        assert (node.step, node.token, node.parent, node.is_best) == (twin.step, twin.token, twin.parent, twin.is_best)
        assert node.total_log_prob == pytest.approx(twin.total_log_prob, abs=1e-4)


def test_recorded_maps_equal_those_of_teacher_forcing(case):
    assert_same_maps_at_valid_steps(case.result, teacher_forced_maps(case.model, case.src, case.result))


def test_recording_changes_no_token_and_no_global_random_state(case):
    state = torch.get_rng_state()
    plain = generate(case.model, case.src, max_steps=STEPS, strategy=case.strategy)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(plain.tokens, case.result.tokens)
    assert_close(plain.log_probs, case.result.log_probs, atol=1e-4, rtol=1e-5)
    assert plain.maps is None
    assert plain.candidates.shape == plain.probabilities.shape == (*plain.tokens.shape, 0)


def test_log_probs_are_those_of_the_tokens_in_the_returned_distributions(case):
    result = case.result
    assert_close(result.probabilities.sum(-1), torch.ones(result.tokens.shape), atol=1e-5, rtol=0)
    assert (result.probabilities.diff(dim=-1) <= 0).all()
    of_tokens = (result.probabilities * (result.candidates == result.tokens[..., None])).sum(-1)
    assert_close(result.log_probs.exp(), of_tokens.masked_fill(~valid_steps(result), 1.0), atol=1e-5, rtol=0)


def test_a_forced_prefix_is_kept_recorded_and_scored(case):
    prefix = torch.tensor([9, 4, 7])
    result = case.generate(case.src, prefix=prefix)
    assert (result.tokens[:, :3] == prefix).all()
    assert result.tokens.shape[1] > 3
    assert_same_maps_at_valid_steps(result, teacher_forced_maps(case.model, case.src, result))
    if case.strategy.repetition_penalty == 1 and not isinstance(case.strategy, Sample):
        logits = case.model(case.src, decoder_inputs(result))
        expected = logits[:, :3].log_softmax(-1).gather(2, result.tokens[:, :3, None]).squeeze(2)
        assert_close(result.log_probs[:, :3], expected, atol=1e-4, rtol=1e-5)


def test_forcing_the_generated_tokens_changes_nothing(case):
    row = next(row for row in range(len(case.src)) if EOS_ID not in case.result.tokens[row, :2])
    for size in (1, 2):
        forced = case.generate(case.alone(row), prefix=case.result.tokens[row, :size])
        if not isinstance(case.strategy, Beam):
            assert torch.equal(forced.tokens[0], case.result.tokens[row, : forced.tokens.shape[1]])
        else:  # a beam that spends no slots on other prefixes finds an equal or better hypothesis
            assert forced.search.scores[0, 0] >= case.result.search.scores[row, 0] - 1e-4


def test_each_source_may_have_its_own_prefix(case):
    prefix = torch.arange(3, 3 + 2 * len(case.src)).remainder(10).add(3).view(-1, 2)
    batched = case.generate(case.src, prefix=prefix)
    assert torch.equal(batched.tokens[:, :2], prefix)
    alone = case.generate(case.alone(3), prefix=prefix[3])
    assert torch.equal(alone.tokens[0], batched.tokens[3, : alone.tokens.shape[1]])


def test_a_prefix_may_be_the_whole_output(case):
    whole = case.generate(case.src, prefix=[5, 6, EOS_ID])
    assert whole.tokens.tolist() == [[5, 6, EOS_ID]] * len(case.src)
    assert whole.stopped.all()
    assert case.generate(case.src, prefix=[5, 6], max_steps=2).tokens.tolist() == [[5, 6]] * len(case.src)


def test_outputs_may_have_one_token_or_as_many_as_the_model_allows(endless):
    for steps in (1, 16):
        result = endless.generate(endless.src, max_steps=steps)
        assert result.tokens.shape == (len(endless.src), steps)
        assert not result.stopped.any()
        assert result.maps.cross.shape[-2] == steps
    with pytest.raises(ValueError, match="max_seq_len=16"):
        endless.generate(endless.src[:1], max_steps=17)


def test_an_empty_source_is_decoded(case):
    src = torch.tensor([[BOS_ID, EOS_ID, PAD_ID, PAD_ID], [BOS_ID, 5, 6, EOS_ID]])
    result = case.generate(src)
    assert result.probabilities.isfinite().all()
    assert result.log_probs.isfinite().all()
    assert result.maps.cross.isfinite().all()
    alone = case.generate(src[:1, :2])
    assert torch.equal(alone.tokens[0], result.tokens[0, : alone.tokens.shape[1]])


def test_bfloat16_gives_nearly_the_same_tokens(case):
    half = generate(deepcopy(case.model).to(torch.bfloat16), case.src, max_steps=1, strategy=case.strategy)
    full = generate(case.model, case.src, max_steps=1, strategy=case.strategy)
    assert half.log_probs.isfinite().all()
    same = full.tokens == half.tokens
    assert same.float().mean() > 0.7
    assert_close(full.log_probs[same], half.log_probs[same], atol=0.3, rtol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_give_finite_results(dtype):
    logits = torch.tensor([-1e4, -1e4, 0.0, 1e4, 1e4 - 64, -1e4], dtype=dtype)
    for strategy in STRATEGIES.values():
        result = generate_recorded(FixedLogitsModel(lambda past: logits), torch.tensor([[BOS_ID, 5, EOS_ID]]), strategy)
        assert result.log_probs.isfinite().all()
        assert result.probabilities.isfinite().all()
        assert result.probabilities.dtype == result.log_probs.dtype == torch.float32
        assert result.tokens[0, 0] == 3
        if result.search:
            assert all(abs(node.total_log_prob) < torch.inf for node in result.search.tree(0))


@pytest.mark.parametrize(
    ("prefix", "steps", "message"),
    [
        ([5, 6, 7], 2, "prefix has 3 tokens, more than max_steps=2"),
        ([EOS_ID, 5], 4, "prefix continues after EOS"),
        ([], 0, "max_steps=0 must be at least 1"),
    ],
)
def test_invalid_prefixes_and_limits_are_refused(prefix, steps, message):
    model = FixedLogitsModel(lambda past: torch.zeros(VOCAB_SIZE))
    with pytest.raises(ValueError, match=message):
        generate(model, torch.tensor([[BOS_ID, 5, EOS_ID]]), max_steps=steps, prefix=prefix)


# --- repetition penalty -------------------------------------------------------------------------------------------


def test_repetition_penalty_divides_positive_logits():
    # Chosen: 3 (logit 4). Then 4, since 4 / 2 = 2 < 3. Then 3 again, since 3 / 2 = 1.5 < 2: penalized only once.
    logits = torch.tensor([-9.0, -9.0, -1.0, 4.0, 3.0, 0.5])
    result = generate(
        FixedLogitsModel(lambda past: logits),
        torch.tensor([[BOS_ID, 5, EOS_ID]]),
        max_steps=4,
        strategy=Greedy(repetition_penalty=2),
        num_candidates=6,
    )
    assert result.tokens.tolist() == [[3, 4, 3, 3]]
    after_one = torch.tensor([-9.0, -9.0, -1.0, 2.0, 3.0, 0.5]).softmax(0)
    assert_close(result.probabilities[0, 1], after_one.sort(descending=True).values)
    after_two = torch.tensor([-9.0, -9.0, -1.0, 2.0, 1.5, 0.5]).softmax(0)
    assert_close(result.probabilities[0, 2], after_two.sort(descending=True).values)
    assert_close(result.log_probs[0, 1], after_one[4].log())


def test_repetition_penalty_multiplies_negative_logits_and_counts_forced_tokens():
    logits = torch.tensor([-9.0, -9.0, -9.0, -1.0, -1.5])
    model, src = FixedLogitsModel(lambda past: logits), torch.tensor([[BOS_ID, 5, EOS_ID]])
    penalized = Greedy(repetition_penalty=2)
    assert generate(model, src, max_steps=2, strategy=penalized).tokens.tolist() == [[3, 4]]  # -2 < -1.5
    assert generate(model, src, max_steps=2, strategy=penalized, prefix=[3]).tokens.tolist() == [[3, 4]]
    assert generate(model, src, max_steps=2, prefix=[3]).tokens.tolist() == [[3, 3]]


# --- settings -----------------------------------------------------------------------------------------------------


def test_strategies_are_parsed_from_plain_data():
    assert parse_strategy({}) == Greedy()
    assert parse_strategy({"kind": "greedy", "repetition_penalty": 2}) == Greedy(repetition_penalty=2.0)
    assert parse_strategy({"kind": "beam", "beam_size": 8, "n_best": 8}) == Beam(beam_size=8, n_best=8)
    assert parse_strategy({"kind": "sample", "temperature": 5, "top_p": 1, "seed": 0}) == Sample(temperature=5.0)


INVALID = [
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
]


def test_invalid_settings_are_reported_with_value_and_rule():
    for document, message in INVALID:
        with pytest.raises(LabError) as caught:
            parse_strategy(document)
        assert str(caught.value) == message


def test_finished_sequences_are_left_out_of_the_batch_and_results_stay(case, monkeypatch):
    rows = []
    decode = case.model.decode
    monkeypatch.setattr(
        case.model, "decode", lambda tgt_in, *others: rows.append(len(tgt_in)) or decode(tgt_in, *others)
    )
    src = torch.cat([case.src, case.src[:1].expand(4, -1)])
    recorded = case.generate(src)
    num_recorded = sum(rows)
    rows.clear()
    plain = generate(case.model, src, max_steps=STEPS, strategy=case.strategy)
    assert torch.equal(plain.tokens, recorded.tokens)
    assert_close(plain.log_probs, recorded.log_probs, atol=1e-5, rtol=0)
    if recorded.stopped.float().mean() > 0.9:
        assert sum(rows) < num_recorded
    if plain.search and recorded.search:
        assert torch.equal(plain.search.tokens, recorded.search.tokens)
        assert torch.equal(plain.search.best_slots, recorded.search.best_slots)
        assert_close(plain.search.scores, recorded.search.scores, atol=1e-5, rtol=0)
        for row in range(len(src)):
            trees = [
                [(node.step, node.token, node.parent) for node in each.search.tree(row)] for each in (plain, recorded)
            ]
            assert trees[0] == trees[1]
