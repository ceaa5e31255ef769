"""The attention section of a report follows from the decoding steps measured."""

import pandas as pd
import pytest
import torch

from core.config.counting import percent
from core.evaluation.accuracy import Evaluation
from core.evaluation.padding_effect import PaddingEffect
from core.models import build_model
from core.reports.report import measure
from core.reports.report.attention_section import answer_questions
from core.reports.report.measurements import ReportMeasurements, TrainingTargets
from core.text.vocab import EOS_ID
from tests.support.scripted_models import decoder_only


def test_the_four_questions_are_answered_from_the_steps(tiny, task, pairs):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100  # otherwise it might stop before producing steps
    measured = measure(model, task, pairs)
    answered = answer_questions(measured)
    assert [answer.question for answer in answered] == [
        "Does the attention show a pattern?",
        "Does it align the output with the input?",
        "Does the attention help?",
        "What happens at the beginning and at the end?",
    ]
    assert "follows the task" in answered[0].sentences[0]
    assert answered[0].sentences[0].startswith("None")  # it is untrained
    best = max((score for score in measured.head_scores()), key=lambda score: score.attention_mass)
    assert percent(best.attention_mass) in answered[0].sentences[1]
    aligned = measured.steps[(measured.steps["head"] == best.head) & (measured.steps.gold_column >= 0)]
    missed = int((aligned.argmax_column != aligned.gold_column).sum())
    assert f"{missed:,} steps are misaligned" in answered[1].sentences[1]
    assert [row[0] for row in answered[3].table] == ["step", "first", "between", "last symbol", "EOS"]
    assert "100 % of the outputs never end" in answered[3].sentences[-1]


def attending(offset: int, share_right: float, *, elsewhere_right: float = 1.0) -> ReportMeasurements:
    """Steps of 100 copied sequences of 4 symbols that attend ``offset`` columns beside the correct one.

    The other steps attend to EOS, and their token is correct in a fraction ``elsewhere_right`` of the sequences.
    """
    rows = []
    for sequence in range(100):
        for step in range(5):
            true, strays = (step + 1 if step < 4 else -1), (sequence + step) % 100 >= share_right * 100
            looked = 5 if strays else min(max(step + 1 + offset, 0), 5)
            right = not strays or sequence % 10 < elsewhere_right * 10
            rows.append((1, 1, sequence, step, 0.5, looked, 0.2, true, right, 4))
    columns = [
        "layer",
        "head",
        "sequence",
        "step",
        "attention_mass",
        "argmax_column",
        "entropy",
        "gold_column",
        "is_correct",
        "length",
    ]
    words = list("abcd")
    facts = {"input": words, "output": words, "reference": words, "length": 4, "stopped": True, "outcome": "exact"}
    sequences = pd.DataFrame([facts | {"is_exact": True, "eos_probability": 0.9}] * 100)
    evaluation = Evaluation(100, 0.01, 1.0, 1.0)
    steps = pd.DataFrame(rows, columns=columns).assign(
        source_length=4, uniform_mass=1 / 6, uniform_accuracy=1 / 6, aer_weight=2.0
    )
    return ReportMeasurements(
        evaluation,
        sequences,
        PaddingEffect(100, 1.0, 1.0),
        steps.assign(argmax_accuracy=(steps.argmax_column == steps.gold_column).astype(float)),
        TrainingTargets(10, 1.0, (4,)),
    )


@pytest.mark.parametrize(
    ("offset", "share", "opening"),
    [
        (0, 1.0, "Yes, a clear one: the head follows the task's gold alignment."),
        (
            -1,
            1.0,
            "Yes, a clear one: the head follows the task's gold alignment, 1 token to the left of the correct",
        ),
        (0, 0.7, "In part: the head often follows"),
        (0, 0.2, "None that follows the task"),
    ],
)
def test_the_pattern_is_named_by_its_offset_and_frequency(offset, share, opening):
    assert answer_questions(attending(offset, share))[0].sentences[0].startswith(opening)


@pytest.mark.parametrize(
    ("share", "elsewhere_right", "verdict"),
    [
        (1.0, 1.0, "too small to compare"),
        (0.99, 0.0, "too small to compare"),
        (0.7, 0.2, "attending to the correct source token goes with a correct output token"),
        (0.7, 1.0, "says little about whether the output token is correct"),
    ],
)
def test_usefulness_is_stated_only_if_both_groups_are_large_enough(share, elsewhere_right, verdict):
    sentences = answer_questions(attending(0, share, elsewhere_right=elsewhere_right))[2].sentences
    assert verdict in sentences[1]
    assert "compresses its whole input" not in " ".join(sentences)  # there is one length only


def test_first_and_last_steps_are_reported_separately():
    answered = answer_questions(attending(0, 1.0))[3]
    assert answered.table[1][:3] == ["first", "50.0 %", "100 %"]
    assert answered.table[4][:3] == ["EOS", "–", "–"]
    assert "the largest weight is: 100 % on EOS" in answered.sentences[1]


def test_weights_of_a_model_that_reads_its_own_output_are_said_to_be_those_on_the_input(tiny, task, pairs):
    for model, says_so in ((decoder_only(), True), (build_model(tiny.model, task, torch.Generator()), False)):
        measured = measure(model, task, pairs)
        first = answer_questions(measured)[0].sentences[0]
        assert ("those of the weights on the input" in first) == says_so
