"""``Ensemble``: the mean of its members' probabilities, with every decoding strategy."""

import pytest
import torch

from core.config import load_preset
from core.generation import Beam, Greedy, generate, sequence_log_prob
from core.models import build_model
from core.models.ensemble import Ensemble
from core.tasks import build_task, fixed_pairs

PRESETS = ("tiny", "digits-reversal-gru", "digits-reversal-decoder-only")


@pytest.fixture(scope="module")
def members():
    """Untrained models of three families, and sources of several lengths."""
    task = build_task(load_preset("digits-reversal").task)
    models = []
    for seed, name in enumerate(PRESETS):
        model = build_model(load_preset(name).model, task, torch.Generator().manual_seed(seed)).eval()
        models.append(model)
    return models, fixed_pairs(task, 12, split="test")


def test_probabilities_are_the_mean_of_the_members(members):
    models, pairs = members
    with torch.no_grad():
        mean = torch.stack([model(pairs.src, pairs.tgt_in).softmax(dim=-1) for model in models]).mean(dim=0)
        torch.testing.assert_close(Ensemble(models)(pairs.src, pairs.tgt_in).exp(), mean)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(beam_size=3, n_best=2)], ids=["greedy", "beam"])
def test_an_ensemble_of_one_model_twice_decodes_as_that_model(members, strategy):
    models, pairs = members
    for model in models:
        alone = generate(model, pairs.src, max_steps=9, strategy=strategy)
        twice = generate(Ensemble([model, model]), pairs.src, max_steps=9, strategy=strategy)
        assert torch.equal(alone.tokens, twice.tokens)
        torch.testing.assert_close(alone.log_probs, twice.log_probs)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(beam_size=3)], ids=["greedy", "beam"])
def test_decoding_step_by_step_scores_as_one_pass_over_its_output(members, strategy):
    models, pairs = members
    ensemble = Ensemble(models)
    result = generate(ensemble, pairs.src, max_steps=9, strategy=strategy)
    expected = sequence_log_prob(ensemble, pairs.src, result.tokens)
    torch.testing.assert_close(result.log_probs.sum(dim=1), expected)


def test_members_with_other_vocabularies_are_refused(members):
    other = load_preset("sort-digits")
    task = build_task(other.with_changes({"task.base": 5}).task)
    stranger = build_model(other.model, task, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"vocab_sizes=\[.*\] of the members must be equal"):
        Ensemble([members[0][0], stranger])
