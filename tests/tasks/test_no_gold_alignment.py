"""Tasks without a gold alignment: heads are not scored, and everything else works."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from core.__main__ import main
from core.config import Preset
from core.config.tasks import DigitsConfig
from core.generation import generate
from core.interpret.head_scores import score_heads
from core.interpret.head_table import head_table
from core.interpret.inspection import inspect
from core.interpret.step_table import step_table
from core.models import build_model
from core.reports.report import measure, write_report
from core.reports.report.attention_section import answer_questions
from core.runs import RunFolder
from core.server import Runs
from core.tasks import build_task
from core.tasks.alignment import gold_alignment, gold_cells
from core.tasks.sequences import Digits
from tests.support.handmade_results import generation_result
from tests.support.trainings import train_run


class Half(Digits):
    """Copies digits; only those at even positions have a gold alignment."""

    def gold_alignment(self, symbols: Sequence[str]) -> list[list[int]]:
        return [[] if position % 2 else [position] for position in range(len(symbols))]

    def answer(self, symbols: Sequence[str]) -> list[str]:
        return list(symbols)


HALF = Half(DigitsConfig(transform="copy", min_length=3, max_length=4))


@pytest.fixture(scope="module")
def adding(tiny) -> Preset:
    return tiny.with_changes({"task.family": "addition", "task.max_digits": 2})


@pytest.fixture(scope="module")
def added(tmp_path_factory, adding) -> Path:
    """A folder with one finished run of a task without gold alignment, ``sums``."""
    root = tmp_path_factory.mktemp("added")
    folder = RunFolder.create(root, adding, name="sums")
    train_run(folder)
    return root


def test_unaligned_tokens_have_no_gold_cell():
    pairs = HALF.sample(20, split="test", generator=torch.Generator().manual_seed(0))
    for row, cells in zip(pairs.src, gold_alignment(HALF, pairs, pairs.tgt_out, steps=5), strict=True):
        assert cells.nonzero().tolist() == [[0, 1], [2, 3]], row
    assert HALF.gold_alignment(["4", "4", "4"]) == [[0], [], [2]]
    assert gold_cells([[], [2], [], [0, 1]], steps=4) == [(1, 3), (3, 1), (3, 2)]
    assert gold_cells([[], [2], [], [0]], steps=3) == [(1, 3)]
    assert gold_cells([[], []], steps=2) == []


def test_unaligned_tokens_do_not_count_in_scores():
    pairs = HALF.sample(10, split="test", generator=torch.Generator().manual_seed(0))
    weights = gold_alignment(HALF, pairs, pairs.tgt_out, steps=5).float()[None, :, None]  # nowhere at the other steps
    decoded = generation_result(pairs.tgt_out, cross=weights)
    (score,) = score_heads(HALF, pairs, decoded)
    assert (score.attention_mass, score.argmax_accuracy) == (1, 1)
    table = head_table(HALF, pairs, decoded)
    assert table[["mass_produced", "aer_produced", "mass_read"]].to_numpy().tolist() == [[1, 0, 0]]


def test_a_task_without_gold_alignment_has_no_scores(adding):
    task = build_task(adding.task)
    model = build_model(adding.model, task, torch.Generator().manual_seed(0)).eval()
    pairs = task.sample(8, split="test", generator=torch.Generator().manual_seed(0))
    decoded = generate(model, pairs.src, max_steps=5, need_weights=True)
    assert score_heads(task, pairs, decoded) == []
    heads = head_table(task, pairs, decoded)
    of_truth = [f"{name}_{token}" for name in ("mass", "uniform", "aer") for token in ("produced", "read")]
    assert heads[of_truth].isna().all(axis=None)
    assert heads.entropy.between(0, 1).all()
    one = pairs[:1].trimmed()
    table = step_table(task, one, generate(model, one.src, max_steps=5, need_weights=True))
    assert (table.gold_column == -1).all()
    assert (table.attention_mass == 0).all()
    assert (table.source_length == one.src.shape[1] - 2).all()
    measured = measure(model, task, pairs)
    assert not measured.steps.empty
    assert measured.head_scores() == answer_questions(measured) == []


def test_inspection_works_without_gold_alignment(added):
    loaded = Runs(added)["sums"].trained()
    seen = inspect(loaded.model, loaded.task, "27 + 58")
    assert seen.sources == [[], []]
    assert seen.scores == []


def test_a_report_says_why_no_head_is_scored(added):
    report = write_report(Runs(added)["sums"], sequences=30)
    assert "This task has no gold alignment" in report.markdown
    assert "add two numbers of up to 2 digits" in report.markdown
    assert "attention_heatmap.png" not in report.figures
    assert "nan" not in report.markdown


def test_evaluate_prints_no_head_scores(added, capsys):
    assert main(["--checkpoints", str(added), "evaluate", "--run", "sums", "--sequences", "50"]) == 0
    printed = capsys.readouterr().out
    assert "exact match" in printed
    assert "true source" not in printed
