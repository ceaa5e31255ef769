"""Scores of heads that translate: the gold alignment is of the words that input and output share."""

from dataclasses import astuple

import pandas as pd
import pytest
import torch

from core.config.tasks import TranslationConfig
from core.evaluation.accuracy import Evaluation
from core.evaluation.padding_effect import PaddingEffect
from core.interpret.head_scores import score_heads
from core.interpret.head_table import head_table
from core.interpret.step_table import step_table
from core.reports.report.measurements import ReportMeasurements, TrainingTargets
from core.tasks import Batch, build_task
from core.text.vocab import BOS_ID, EOS_ID
from tests.support.handmade_results import generation_result


@pytest.fixture(scope="module")
def task():
    return build_task(TranslationConfig())


def test_a_head_is_scored_on_the_words_that_the_output_shares_with_the_input(task):
    source, output = task.tokenize("Press F5 in LibreOffice."), task.tokenize("In LibreOffice drücken Sie F5.")
    src = torch.tensor([[BOS_ID, *task.src_vocab.encode(source), EOS_ID]])
    tokens = torch.tensor([[*task.tgt_vocab.encode(output), EOS_ID]])
    alignment = task.produced_alignment(source, output)
    links = [(step, columns) for step, columns in enumerate(alignment) if columns]
    names = {"".join(source[column] for column in columns) for _, columns in links}
    assert names == {"▁F5", "▁LibreOffice"}
    right = torch.zeros(1, 1, 1, tokens.shape[1], src.shape[1])
    right[..., 0] = 1
    for step, columns in links:
        right[0, 0, 0, step] = 0
        right[0, 0, 0, step, columns[0] + 1] = 1  # column 0 is BOS
    decoded = generation_result(tokens, cross=torch.cat([right, torch.full_like(right, 1 / src.shape[1])], dim=2))
    best, uniform = score_heads(task, Batch(src, src), decoded)
    assert (best.attention_mass, best.argmax_accuracy) == (1, 1)
    expected = sum(len(columns) for _, columns in links) / len(links) / src.shape[1]
    assert uniform.attention_mass == pytest.approx(expected)
    assert (best.aer, uniform.aer) == (0, pytest.approx(uniform.uniform_aer))
    steps = step_table(task, Batch(src, src), decoded)
    facts = Evaluation(1, 0.0, 0.0, 0.0), pd.DataFrame(), PaddingEffect(1, 0.0, 0.0)
    measured = ReportMeasurements(*facts, steps, TrainingTargets(1, 1.0, (4,)))
    for score, reported in zip((best, uniform), measured.head_scores(), strict=True):
        assert astuple(reported) == pytest.approx(astuple(score))
    table = head_table(task, Batch(src, src), decoded)
    assert table["links"].tolist() == [len(links)] * 2
    assert table["aer_produced"].tolist() == [0, pytest.approx(table["uniform_aer_produced"][0])]


def test_an_output_without_shared_words_has_no_score(task):
    src = torch.tensor([[BOS_ID, *task.src_vocab.encode(task.tokenize("Press F5.")), EOS_ID]])
    tokens = torch.tensor([[*task.tgt_vocab.encode(task.tokenize("Sie können.")), EOS_ID]])
    maps = torch.full((1, 1, 1, tokens.shape[1], src.shape[1]), 1 / src.shape[1])
    decoded = generation_result(tokens, cross=maps)
    assert score_heads(task, Batch(src, src), decoded) == []
    assert head_table(task, Batch(src, src), decoded)["links"].tolist() == [0]
