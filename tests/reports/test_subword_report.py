"""The report on a translation in subwords: sentences as text, and pieces as people read them."""

from dataclasses import replace

import pytest
import torch

from core.config.counting import percent
from core.models import build_model
from core.reports.report import tables
from core.reports.report.attention_section import SHARED_WORDS, answer_questions
from core.reports.report.gallery import gallery_as_data, gallery_of
from core.reports.report.measurements import ReportMeasurements, measure
from core.reports.report.tables import examples, heads_table
from core.tasks import build_task, fixed_pairs
from tests.support.translation_run import small_translation


@pytest.fixture(scope="module")
def measured() -> ReportMeasurements:
    preset = small_translation()
    task = build_task(preset.task)
    model = build_model(preset.model, task, torch.Generator().manual_seed(0)).eval()
    return measure(model, task, fixed_pairs(task, 4, split="test"))


def test_examples_and_failures_are_sentences(measured):
    for row in examples(measured.sequences):
        assert "▁" not in row["input"] + row["output"] + row["reference"]
    gallery = gallery_as_data(gallery_of(measured.sequences), subwords=True)
    for group in gallery["groupings"]["kind"]:
        for example in group["examples"]:
            assert example["texts"]["source"] == example["typed"]
            assert "▁" not in "".join(example["texts"].values())


def test_the_questions_are_about_shared_words_and_name_pieces(measured, monkeypatch):
    """The untrained output shares no word with its input: some step is declared to be a link."""
    steps = measured.steps.assign(gold_column=1, aer_weight=2.0)
    answers = answer_questions(replace(measured, steps=steps))
    assert [answer.question for answer in answers] == [
        "Does the attention show a pattern?",
        "Does it align the output with the input?",
    ]
    assert answers[0].sentences[0] == SHARED_WORDS
    assert answers[1].table is not None
    assert "▁" not in "".join("".join(row) for row in answers[1].table)
    header, *rows = heads_table(replace(measured, steps=steps))
    assert header[-2:] == ["alignment error rate", "at random"]
    assert len(rows) == 4  # two layers of two heads
    monkeypatch.setattr(tables, "MAX_HEADS", 3)
    masses = [each.attention_mass for each in replace(measured, steps=steps).head_scores()]
    _, *fewer = heads_table(replace(measured, steps=steps))
    assert [row[2] for row in fewer] == [percent(mass) for mass in sorted(masses, reverse=True)[:3]]
