"""What a report says of attention follows from the steps it was measured on."""

import pandas as pd
import pytest
import torch

from core.evaluation.accuracy import Evaluation
from core.models import build_model
from core.reports.formatting import percent
from core.reports.report import measure
from core.reports.report.attention_section import answers
from core.reports.report.measurements import ReportMeasurements, TrainingTargets
from core.tasks import Batch, build_task, fixed_pairs
from core.text.vocab import EOS_ID


@pytest.fixture(scope="module")
def task(tiny):
    return build_task(tiny.task)


@pytest.fixture(scope="module")
def pairs(task) -> Batch:
    return fixed_pairs(task, 60, split="test")


def test_the_four_questions_are_answered_from_the_steps(tiny, task, pairs):
    model = build_model(tiny.model, task, torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.output.bias[EOS_ID] = -100  # else it might stop before there is anything to see
    measured = measure(model, task, pairs)
    answered = answers(measured)
    assert [answer.question for answer in answered] == [
        "What patterns does the attention show?",
        "Does it align the answer with the input?",
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
    assert "100\N{NO-BREAK SPACE}% of the answers never end" in answered[3].sentences[-1]


def looking(offset: int, share_right: float, *, elsewhere_right: float = 1.0) -> ReportMeasurements:
    """Steps of 100 sequences of 4 symbols, copied, that look ``offset`` columns beside the true one.

    In a share of them the head looks at EOS instead, and writes the right token as often as told.
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
    steps = pd.DataFrame(rows, columns=columns).assign(source_length=4, uniform_mass=1 / 6)
    return ReportMeasurements(
        evaluation,
        sequences,
        steps.assign(argmax_accuracy=(steps.argmax_column == steps.gold_column).astype(float)),
        TrainingTargets(10, 1.0, (4,)),
    )


@pytest.mark.parametrize(
    ("offset", "share", "opening"),
    [
        (0, 1.0, "A clear one: the head follows the task's own map from answer to input."),
        (
            -1,
            1.0,
            "A clear one: the head follows the task's own map from answer to input, 1 token to the left of the true",
        ),
        (0, 0.7, "A partial one: the head often follows"),
        (0, 0.2, "None that follows the task"),
    ],
)
def test_a_pattern_is_called_what_it_is(offset, share, opening):
    assert answers(looking(offset, share))[0].sentences[0].startswith(opening)


@pytest.mark.parametrize(
    ("share", "elsewhere_right", "verdict"),
    [
        (1.0, 1.0, "too little to compare"),
        (0.99, 0.0, "too little to compare"),
        (0.7, 0.2, "looking at the true token goes with writing it"),
        (0.7, 1.0, "says little about whether the right token is written"),
    ],
)
def test_whether_attention_helps_is_said_only_where_there_is_something_to_compare(share, elsewhere_right, verdict):
    sentences = answers(looking(0, share, elsewhere_right=elsewhere_right))[2].sentences
    assert verdict in sentences[1]
    assert "squeezed its whole input" not in " ".join(sentences)  # there is one length only


def test_the_end_of_each_answer_is_told_apart():
    answered = answers(looking(0, 1.0))[3]
    assert answered.table[1][:3] == ["first", "50.0\N{NO-BREAK SPACE}%", "100\N{NO-BREAK SPACE}%"]
    assert answered.table[4][:3] == ["EOS", "–", "–"]
    assert "the head looks most: 100\N{NO-BREAK SPACE}% at EOS" in answered.sentences[1]
