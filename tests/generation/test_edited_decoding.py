"""Heads knocked out or forced while a model writes: batch, cache, padding and strategy change nothing."""

import pytest
import torch
from torch.testing import assert_close

from core.generation import GREEDY, Beam, Sample, Strategy, generate
from core.interpret.inspection import inspect
from core.models import build_model
from core.models.heads import Head, Interventions
from core.models.seq2seq import Seq2Seq
from core.storage.errors import InputError
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, PAD_ID
from tests.support.scripted_models import (
    UncachedModel,
    assert_same_maps_at_valid_steps,
    decoder_inputs,
    decoder_only,
    gru,
    transformer,
    valid_steps,
)

STEPS = 8
STRATEGIES = {"greedy": GREEDY, "beam": Beam(beam_size=3, n_best=2), "sample": Sample(temperature=1.5, seed=3)}
WRITERS = {"transformer": transformer, "gru": gru, "decoder-only": decoder_only}
EDITS = {
    "transformer": {"ablate": ["encoder.2.1", "decoder.1.2", "cross.1.1"], "force": ["cross.2.2=anti-diagonal"]},
    "gru": {"force": ["cross.1.1=anti-diagonal"]},
    "decoder-only": {"ablate": ["decoder.1.2", "decoder.2.1"]},
}


@pytest.fixture(params=STRATEGIES)
def strategy(request) -> Strategy:
    return STRATEGIES[request.param]


@pytest.fixture(params=WRITERS)
def name(request) -> str:
    return request.param


@pytest.fixture
def model(name) -> Seq2Seq:
    return WRITERS[name]()


@pytest.fixture(params=["zero", "mean"])
def interventions(request, name, model) -> Interventions:
    if request.param == "zero":
        return Interventions.parse(model.heads, **EDITS[name])
    means = {head: torch.linspace(-1, 1, 12 if name == "gru" else 8) for head in model.heads}
    asked = EDITS[name] if name != "gru" else {"ablate": ["cross"]}
    return Interventions.parse(model.heads, **asked, means=means)


@pytest.fixture
def src(tiny) -> torch.Tensor:
    return build_task(tiny.task).sample(10, split="test", generator=torch.Generator().manual_seed(0)).src


def test_cache_batch_and_padding_change_nothing(model, interventions, src, strategy):
    together = generate(model, src, max_steps=STEPS, strategy=strategy, interventions=interventions)
    anew = generate(UncachedModel(model), src, max_steps=STEPS, strategy=strategy, interventions=interventions)
    assert torch.equal(together.tokens, anew.tokens)
    assert_close(together.log_probs, anew.log_probs, atol=1e-4, rtol=1e-5)
    wide = torch.nn.functional.pad(src, (0, 3), value=PAD_ID)
    assert torch.equal(
        together.tokens, generate(model, wide, max_steps=STEPS, strategy=strategy, interventions=interventions).tokens
    )
    for row, ids in enumerate(src):
        alone = generate(
            model, ids[ids != PAD_ID][None], max_steps=STEPS, strategy=strategy, interventions=interventions
        )
        steps = alone.tokens.shape[1]
        assert torch.equal(alone.tokens[0], together.tokens[row, :steps])
        assert (together.tokens[row, steps:] == PAD_ID).all()
    assert not torch.equal(together.log_probs, generate(model, src, max_steps=STEPS, strategy=strategy).log_probs)


def test_maps_are_those_of_reading_what_was_written_with_the_same_edits(model, interventions, src, strategy):
    decoded = generate(model, src, max_steps=STEPS, strategy=strategy, interventions=interventions, need_weights=True)
    plain = generate(model, src, max_steps=STEPS, strategy=strategy, interventions=interventions)
    assert torch.equal(decoded.tokens, plain.tokens)
    _, maps = model(src, decoder_inputs(decoded), need_weights=True, interventions=interventions)
    assert_same_maps_at_valid_steps(decoded, maps)
    for head, _ in interventions.forced:
        lengths = (src != PAD_ID).sum(dim=1) - 2
        looked_at = decoded.maps.cross[head.layer - 1, :, head.head - 1].argmax(dim=-1)
        steps = torch.arange(looked_at.shape[1])
        assert ((looked_at == (lengths[:, None] - steps).clamp(min=0)) | ~valid_steps(decoded)).all()


def test_an_edit_is_of_one_decode_only(model, interventions, src):
    before = generate(model, src, max_steps=STEPS)
    generate(model, src, max_steps=STEPS, interventions=interventions)
    after = generate(model, src, max_steps=STEPS)
    assert torch.equal(before.tokens, after.tokens)
    assert torch.equal(before.log_probs, after.log_probs)


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_without_cross_attention_the_source_does_not_matter(src, ablation, strategy):
    if isinstance(strategy, Sample):  # its random numbers depend on the source
        strategy = Sample(temperature=0.001)
    model = transformer()
    means = {head: torch.ones(8) for head in model.heads} if ablation == "mean" else None
    blind = Interventions.parse(model.heads, ablate=["cross"], means=means)
    answers = generate(model, src, max_steps=STEPS, strategy=strategy, interventions=blind).tokens
    assert len({tuple(row) for row in answers.tolist()}) == 1
    other = torch.tensor([[BOS_ID, 12, EOS_ID]])
    assert torch.equal(
        generate(model, other, max_steps=STEPS, strategy=strategy, interventions=blind).tokens, answers[:1]
    )
    seeing = generate(model, src, max_steps=STEPS, strategy=strategy).tokens
    assert len({tuple(row) for row in seeing.tolist()}) > 3


def test_a_head_that_the_model_lacks_is_refused(model, src, strategy):
    with pytest.raises(InputError, match=r"head=encoder\.7\.1 is not in this model, which has"):
        generate(model, src, max_steps=STEPS, strategy=strategy, interventions=Interventions((Head("encoder", 7, 1),)))


# --- one input, looked into -------------------------------------------------------------------------------------


def test_a_cross_head_forced_to_reverse_points_at_the_true_source(tiny):
    task = build_task(tiny.task)
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        model.output.bias[PAD_ID] = -100
    interventions = Interventions.parse(model.heads, force=["cross.1.2=anti-diagonal"], ablate=["encoder"])
    seen, plain = (
        inspect(model, task, "4829", prefix="9 2 8 4", **asked) for asked in ({"interventions": interventions}, {})
    )
    assert seen.interventions is interventions
    free, forced = seen.scores
    assert (forced.layer, forced.head, forced.attention_mass, forced.argmax_accuracy) == (1, 2, 1.0, 1.0)
    assert free.attention_mass < 0.9
    # How likely the answer is, is said of the model with the interventions, which wrote it.
    chosen = torch.tensor([step.probability for step in seen.steps])
    assert seen.log_prob == pytest.approx(chosen.log().sum().item(), abs=1e-4)
    assert seen.log_prob != pytest.approx(plain.log_prob, abs=1e-3)
    assert str(plain.interventions) == ""
