"""The threshold below which an answer is called unsure, and what it says of the shipped runs."""

import math

import pytest
import torch

from core.evaluation.accuracy import evaluate
from core.evaluation.confidence import MIN_CORRECT, SURE, confidence_threshold
from core.evaluation.outputs import Outputs
from core.generation import GREEDY, Beam, Sample
from core.runs import DEFAULT_ROOT, Runs
from core.tasks import Batch, fixed_pairs
from core.text.vocab import BOS_ID, EOS_ID
from tests.serving import SHIPPED, TRANSLATOR


def outputs(means: list[float], *, correct: int) -> Outputs:
    """Outputs of one token and EOS with these mean log-probabilities, of which the first are correct."""
    tokens = torch.tensor([[4, EOS_ID]] * len(means))
    target = tokens.clone()
    target[correct:, 0] = 5
    pairs = Batch(tokens, torch.cat([torch.full((len(means), 1), BOS_ID), target], dim=1))
    return Outputs(pairs, tokens, torch.tensor(means)[:, None].expand(-1, 2))


def threshold_of(means: list[float], *, correct: int) -> float | None:
    found = outputs(means, correct=correct)
    return confidence_threshold(found, found.is_exact())


def test_more_than_nine_in_ten_correct_outputs_reach_the_threshold_whatever_the_wrong_ones_have():
    means = [-0.5 - number / 100 for number in range(50)]
    threshold = threshold_of([*means, *[-9.0] * 30], correct=50)
    assert sum(mean >= threshold for mean in means) == 46


def test_a_model_that_is_nearly_always_right_and_sure_calls_no_sure_answer_unsure():
    assert threshold_of([-0.001] * 40, correct=40) == round(math.log(SURE), 4)


def test_there_is_no_threshold_from_few_correct_outputs():
    assert threshold_of([-1.0] * 100, correct=MIN_CORRECT - 1) is None
    assert threshold_of([-1.0] * 100, correct=MIN_CORRECT) == -1


def test_the_shipped_digits_have_the_threshold_of_their_validation():
    trained = Runs(DEFAULT_ROOT)[SHIPPED].trained()
    pairs = fixed_pairs(trained.task, trained.preset.training.validation_sequences, split="validation")
    assert evaluate(trained.model, pairs, task=trained.task).confidence_threshold == trained.confidence_threshold


@pytest.mark.parametrize(
    ("text", "is_unsure"),
    [
        ("I know where he lives.", False),
        ("We can't start today.", False),
        ("The fiscal deficit of the municipality exacerbated inequality.", True),
        ("Wir haben den Zug verpasst.", True),
    ],
)
def test_the_translator_is_unsure_of_what_it_was_not_trained_on(text: str, is_unsure: bool):
    assert Runs(DEFAULT_ROOT)[TRANSLATOR].trained().decode(text).is_unsure is is_unsure


def test_only_answers_that_the_unchanged_model_chose_are_compared():
    trained = Runs(DEFAULT_ROOT)[SHIPPED].trained()
    for strategy in (GREEDY, Beam(beam_size=2)):
        assert trained.decode("4 8 2 9", strategy=strategy).is_unsure is False
    assert trained.decode("4 8 2 9", strategy=Sample(seed=1)).is_unsure is None
    assert trained.decode("4 8 2 9", prefix="9").is_unsure is None
    assert trained.ablate("cross.2").decode("4 8 2 9").is_unsure is None
