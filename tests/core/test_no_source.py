"""Answers whose tokens come from nowhere certain: nothing to score, and nothing that breaks for it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from core.__main__ import main
from core.analysis import score_decoded, score_heads, step_table, true_cells, true_columns
from core.config import Preset
from core.decoding import decode
from core.history import History
from core.inspection import inspect
from core.models import build_model
from core.recording import train_recorded
from core.report import measure, write_report
from core.report.attention_answers import answers
from core.run_folder import RunFolder
from core.runs import Runs
from core.tasks import build_task
from core.tasks.digits import Digits
from core.training import new_state


class Half(Digits):
    """Copies digits; only those at even places say where they come from."""

    def alignment(self, symbols: Sequence[str]) -> list[int]:
        return [-1 if place % 2 else place for place in range(len(symbols))]

    def answer(self, symbols: Sequence[str]) -> list[str]:
        return list(symbols)


HALF = Half(transform="copy", min_length=3, max_length=4)


@pytest.fixture(scope="module")
def adding(tiny) -> Preset:
    return tiny.with_changes({"task.family": "addition", "task.max_digits": 2})


@pytest.fixture(scope="module")
def added(tmp_path_factory, adding) -> Path:
    """A folder with one finished run of a task without any true source, ``sums``."""
    root = tmp_path_factory.mktemp("added")
    folder = RunFolder.create(root, adding, name="sums")
    train_recorded(folder, new_state(adding), History(8), should_stop=lambda: False, on_event=lambda event: None)
    return root


def test_tokens_without_a_source_have_no_column_and_no_cell():
    pairs = HALF.sample(20, split="test", generator=torch.Generator().manual_seed(0))
    for row, columns in zip(pairs.src, true_columns(HALF, pairs, steps=5).tolist(), strict=True):
        length = int((row > 2).sum())
        assert columns == [1, -1, 3, -1, -1][:length] + [-1] * (5 - length)
    assert true_cells([-1, 2, -1, 0], steps=4) == [(1, 3), (3, 1)]
    assert true_cells([-1, 2, -1, 0], steps=3) == [(1, 3)]
    assert true_cells([-1, -1], steps=2) == []


def test_tokens_without_a_source_do_not_count_in_scores():
    pairs = HALF.sample(10, split="test", generator=torch.Generator().manual_seed(0))
    columns = true_columns(HALF, pairs, steps=5)
    weights = torch.nn.functional.one_hot(columns.clamp(min=0), 6).float()[None, :, None]
    (score,) = score_heads(weights, columns, pairs.src)
    assert (score.share, score.hits) == (1, 1)


def test_a_task_without_any_source_is_not_scored(adding):
    task = build_task(adding.task)
    model = build_model(adding.model, task, torch.Generator().manual_seed(0)).eval()
    pairs = task.sample(8, split="test", generator=torch.Generator().manual_seed(0))
    decoded = decode(model, pairs.src, max_steps=5, need_weights=True)
    assert score_decoded(task, pairs, decoded) == []
    one = pairs[:1]
    length = int((one.src != 0).sum())
    table = step_table(
        task, type(one)(one.src[:, :length], one.tgt), decode(model, one.src, max_steps=5, need_weights=True)
    )
    assert (table.true_column == -1).all()
    assert (table.share == 0).all()
    assert (table.source_length == one.src.shape[1] - 2).all()
    measured = measure(model, task, pairs)
    assert not measured.steps.empty
    assert measured.head_scores() == answers(measured) == []


def test_an_input_is_looked_into_all_the_same(added):
    published = Runs(added).published("sums")
    seen = inspect(published.model, published.task, "27 + 58")
    assert seen.alignment == [-1, -1]
    assert seen.scores == []


def test_a_report_says_why_it_judges_no_head(added):
    report = write_report(Runs(added), "sums", sequences=30)
    assert "Its task does not say which input token a token of the answer comes from" in report.markdown
    assert "add two numbers of up to 2 digits" in report.markdown
    assert "attention_heatmap.png" not in report.pictures
    assert "nan" not in report.markdown


def test_the_command_line_says_nothing_of_true_sources(added, capsys):
    assert main(["--checkpoints", str(added), "evaluate", "--run", "sums", "--sequences", "50"]) == 0
    printed = capsys.readouterr().out
    assert "exact match" in printed
    assert "true source" not in printed
