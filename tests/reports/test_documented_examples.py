"""The ten documented sentences in a report: the run's answers and those of the document's model."""

import pytest
import torch

from core.config import load_preset
from core.models import build_model
from core.reports.report import write_report
from core.reports.report.documented_examples import documented_examples
from core.runs import RunFolder
from core.server import Runs
from core.tasks import build_task
from core.tasks.word_examples import WORD_EXAMPLES
from tests.support.scripted_models import reversing
from tests.support.trainings import train_run

TASK = build_task(load_preset("words-reversal-gru").task)
SMALL = {
    "model.d_embedding": 4,
    "model.d_hidden": 8,
    "model.num_layers": 1,
    "training.steps": 2,
    "training.warmup_steps": 0,
    "training.training_sequences": 50,
    "training.validation_sequences": 20,
    "training.evaluate_every": 1,
    "training.batch_size": 4,
}


def test_a_perfect_model_matches_all_ten_and_the_document_two(scripted):
    shown = documented_examples(scripted(reversing, vocab_size=38), TASK)
    assert (shown.matches, shown.own_matches) == (10, 2)
    assert len(shown.table) == 11
    assert {len(row) for row in shown.table} == {6}
    for row, example in zip(shown.table[1:], WORD_EXAMPLES, strict=True):
        ours = [example.sentence, example.reference, example.reference, "match"]
        assert row == [*ours, example.output, "match" if example.output == example.reference else "no match"]


def test_a_wrong_or_endless_answer_is_no_match(scripted):
    cat = TASK.src_vocab.encode(["cat"])[0]
    shown = documented_examples(scripted(lambda src: torch.full_like(src, cat), vocab_size=38), TASK)
    assert shown.matches == 0
    assert {row[3] for row in shown.table[1:]} == {"no match"}


@pytest.mark.parametrize(
    "changes", [{"task.transform": "copy"}, {"task.family": "digits"}, {"task.max_length": 8, "model.max_seq_len": 11}]
)
def test_other_tasks_and_models_too_short_for_the_sentences_have_no_such_section(changes):
    preset = load_preset("words-reversal-gru").with_changes(SMALL | changes)
    task = build_task(preset.task)
    assert documented_examples(build_model(preset.model, task, torch.Generator()), task) is None


def test_the_report_of_a_words_run_shows_the_ten_and_the_free_running_loss(root):
    preset = load_preset("words-reversal-gru-as-told").with_changes(SMALL)
    folder = RunFolder.create(root, preset, name="words")
    train_run(folder)
    report = write_report(Runs(root)["words"], sequences=20)
    section = report.markdown.split("## The ten examples of the document")[1].split("## Attention")[0]
    for example in WORD_EXAMPLES:
        row = next(line for line in section.splitlines() if line.startswith(f"| {example.sentence} |"))
        assert f" | {example.reference} | " in row
        assert f" | {example.output} | " in row
    assert "| loss when the model reads its own output | " in report.markdown
