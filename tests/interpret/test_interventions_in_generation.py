"""Interventions on heads during decoding: independent of batch, cache, padding and strategy, and of other calls."""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from core.generation import GREEDY, Beam, GenerationResult, Sample, Strategy, generate
from core.interpret.interventions import Interventions
from core.models import forward_with_attention
from core.models.seq2seq import Head, Seq2Seq
from core.storage.errors import InputError
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import (
    UncachedModel,
    assert_same_maps_at_valid_steps,
    decoder_inputs,
    decoder_only,
    encoder_only,
    gru,
    transformer,
    valid_steps,
)

STEPS = 8
STRATEGIES = (GREEDY, Beam(beam_size=3, n_best=2), Sample(temperature=1.5, seed=3))
MODELS = {"transformer": transformer, "gru": gru, "decoder-only": decoder_only, "encoder-only": encoder_only}
ZERO = {
    "transformer": {"ablate": ["encoder.2.1", "decoder.1.2", "cross.1.1"], "patterns": ["cross.2.2=anti-diagonal"]},
    "gru": {"patterns": ["cross.1.1=anti-diagonal"]},
    "decoder-only": {"ablate": ["decoder.1.2", "decoder.2.1"]},
    "encoder-only": {"ablate": ["encoder.1.2", "encoder.2.1"]},
}
MEAN = ZERO | {"gru": {"ablate": ["cross"]}}


@dataclass(frozen=True)
class Case:
    """A model, interventions on its heads, and sources."""

    model: Seq2Seq
    interventions: Interventions
    src: torch.Tensor

    def generate(self, src: torch.Tensor, strategy: Strategy, **settings) -> GenerationResult:
        model = self.model.model if isinstance(self.model, UncachedModel) else self.model
        with self.interventions.applied_to(model):
            return generate(self.model, src, max_steps=STEPS, strategy=strategy, **settings)


@pytest.fixture(scope="module")
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(10, split="test", generator=torch.Generator().manual_seed(0)).src


@pytest.fixture(scope="module", params=product(MODELS, ("zero", "mean")), ids="-".join)
def case(request, src) -> Case:
    family, ablation = request.param
    model = MODELS[family]()
    if ablation == "zero":
        return Case(model, Interventions.parse(model.heads, **ZERO[family]), src)
    means = {head: torch.linspace(-1, 1, 12 if family == "gru" else 8) for head in model.heads}
    return Case(model, Interventions.parse(model.heads, **MEAN[family], means=means), src)


def test_results_are_independent_of_cache_batch_and_padding(case):
    for strategy in STRATEGIES:
        batched = case.generate(case.src, strategy)
        uncached = Case(UncachedModel(case.model), case.interventions, case.src).generate(case.src, strategy)
        assert torch.equal(batched.tokens, uncached.tokens)
        assert_close(batched.log_probs, uncached.log_probs, atol=1e-4, rtol=1e-5)
        padded = torch.nn.functional.pad(case.src, (0, 3), value=PAD_ID)
        assert torch.equal(batched.tokens, case.generate(padded, strategy).tokens)
        for row, ids in enumerate(case.src[:2]):
            alone = case.generate(ids[ids != PAD_ID][None], strategy)
            steps = alone.tokens.shape[1]
            assert torch.equal(alone.tokens[0], batched.tokens[row, :steps])
            assert (batched.tokens[row, steps:] == PAD_ID).all()
        plain = generate(case.model, case.src, max_steps=STEPS, strategy=strategy)
        assert not torch.equal(batched.log_probs, plain.log_probs)


def test_recorded_maps_equal_those_of_teacher_forcing(case):
    for strategy in STRATEGIES:
        recorded = case.generate(case.src, strategy, need_weights=True)
        assert torch.equal(recorded.tokens, case.generate(case.src, strategy).tokens)
        inputs = decoder_inputs(recorded)
        with case.interventions.applied_to(case.model):
            _, maps = forward_with_attention(case.model, case.src, inputs)
        assert_same_maps_at_valid_steps(recorded, maps)


def test_a_forced_head_attends_where_its_pattern_says(case):
    lengths = (case.src != PAD_ID).sum(dim=1) - 2
    for strategy in STRATEGIES:
        recorded = case.generate(case.src, strategy, need_weights=True)
        for head, _ in case.interventions.patterns:
            attended = recorded.maps.cross[head.layer - 1, :, head.head - 1].argmax(dim=-1)
            anti_diagonal = (lengths[:, None] - torch.arange(attended.shape[1])).clamp(min=0)
            assert ((attended == anti_diagonal) | ~valid_steps(recorded)).all()


def test_interventions_affect_one_call_only(case):
    before = generate(case.model, case.src, max_steps=STEPS)
    case.generate(case.src, GREEDY)
    after = generate(case.model, case.src, max_steps=STEPS)
    assert torch.equal(before.tokens, after.tokens)
    assert torch.equal(before.log_probs, after.log_probs)


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_without_cross_attention_the_source_has_no_effect(src, ablation):
    model = transformer()
    means = {head: torch.ones(8) for head in model.heads} if ablation == "mean" else None
    no_cross_attention = Interventions.parse(model.heads, ablate=["cross"], means=means)
    # Sampling noise depends on the source, so sample at a temperature that makes it irrelevant.
    for strategy in (GREEDY, Beam(beam_size=3, n_best=2), Sample(temperature=0.001)):
        settings = {"max_steps": STEPS, "strategy": strategy}
        with no_cross_attention.applied_to(model):
            outputs = generate(model, src, **settings).tokens
            of_other = generate(model, torch.tensor([[BOS_ID, 12, EOS_ID]]), **settings).tokens
        assert len(outputs.unique(dim=0)) == 1
        assert torch.equal(of_other, outputs[:1])
        assert len(generate(model, src, **settings).tokens.unique(dim=0)) > 2


def test_a_head_that_the_model_lacks_is_refused(case):
    missing = Interventions((Head("encoder", 7, 1),))
    with pytest.raises(InputError, match=r"head=encoder\.7\.1 is not in this model, which has"):
        Case(case.model, missing, case.src).generate(case.src, GREEDY)
