"""Failures in the Report tab: found in groups, told in a sentence, cancelled, refused."""

import json
import shutil
from pathlib import Path

import pytest

from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from tests.serving import SHIPPED
from ui.tabs import report
from ui.tabs.report import INPUTS, Finder, Inputs


@pytest.fixture
def finder(tmp_path: Path, monkeypatch) -> Finder:
    """A finder over a lab with the shipped run, which looks among few inputs."""
    root = tmp_path / "checkpoints"
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    monkeypatch.setitem(INPUTS, "few", Inputs("held out", 300, "held-out inputs"))
    monkeypatch.setattr(report, "SECONDS_BETWEEN_NEWS", 0.0)
    return Finder(Runs(root))


def test_a_model_without_errors_says_so_and_how_to_see_some(finder: Finder):
    *before, (ticket, message, view, button, cancel) = finder.found(SHIPPED, "few")
    assert before[0][2]["progress"]["run"] == SHIPPED
    assert (ticket, message["text"], button["interactive"], cancel["interactive"]) == (None, "", True, False)
    step = finder.runs.loaded(SHIPPED).step
    said = f"0 wrong answers to 300 held-out inputs, by {SHIPPED} after {step:,} steps, decoding greedily."
    assert view["summary"] == said
    assert "longer than trained on" in view["advice"]


def test_longer_inputs_fail_in_groups_whose_examples_can_be_typed(finder: Finder):
    *_, (_, _, view, *_) = finder.found(SHIPPED, "longer than trained on")
    assert view["wrong"] > 900
    assert "inputs longer than those it was trained on" in view["summary"]
    assert json.loads(json.dumps(view)) == view
    task = finder.runs.loaded(SHIPPED).task
    for groups in view["groupings"].values():
        assert sum(group["count"] for group in groups) == view["wrong"]
        for example in groups[0]["examples"]:
            assert task.tokenize(" ".join(example["input"])) == example["input"]
            assert task.answer(example["input"]) == example["expected"] != example["output"]


def test_cancelling_and_errors_leave_the_section_ready(finder: Finder, tiny):
    work = finder.found(SHIPPED, "few")
    ticket, *_ = next(work)
    finder.cancelling.cancel(ticket)
    (last,) = work
    assert last[1]["text"] == "Cancelled."
    RunFolder.create(finder.runs.root, tiny, name="empty", status="stopped")
    for run, reason in ((None, "train one first"), ("empty", "no weights yet"), ("gone", "no such run")):
        (last,) = finder.found(run, "few")
        assert reason in last[1]["text"]
        assert last[3]["interactive"] is True


def test_an_unknown_choice_looks_among_the_first(finder: Finder, monkeypatch):
    monkeypatch.setitem(INPUTS, next(iter(INPUTS)), INPUTS["few"])
    *_, (_, _, view, *_) = finder.found(SHIPPED, "<script>")
    assert view["inputs"] == 300
