"""Wrong answers on the Report tab: groups, summary, cancellation and errors."""

import json
import shutil
from pathlib import Path

import pytest

from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from tests.serving import SHIPPED
from ui.tabs import cancellable
from ui.tabs.report import INPUTS, FailureFinder, Inputs


@pytest.fixture
def finder(tmp_path: Path, monkeypatch) -> FailureFinder:
    """A finder over a lab with the shipped run, which looks among few inputs."""
    root = tmp_path / "checkpoints"
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    monkeypatch.setitem(INPUTS, "few", Inputs("held out", 300, "held-out inputs"))
    monkeypatch.setattr(cancellable, "UPDATE_INTERVAL", 0.0)
    return FailureFinder(Runs(root))


def test_a_perfect_run_says_so_and_suggests_harder_inputs(finder: FailureFinder):
    *before, last = finder.find(SHIPPED, "few")
    assert before[0]["result"]["progress"]["run"] == SHIPPED
    assert (last["ticket"], last["message"]["text"]) == (None, "")
    assert (last["start"]["interactive"], last["cancel"]["interactive"]) == (True, False)
    view = last["result"]
    step = finder.runs[SHIPPED].trained().step
    message = f"0 wrong answers to 300 held-out inputs, by {SHIPPED} after {step:,} steps, greedy decoding."
    assert view["summary"] == message
    assert "longer than in training" in view["advice"]


def test_wrong_answers_to_longer_inputs_are_grouped_with_examples(finder: FailureFinder):
    *_, last = finder.find(SHIPPED, "longer than in training")
    view = last["result"]
    assert view["wrong"] > 900
    assert "inputs longer than those in training" in view["summary"]
    assert json.loads(json.dumps(view)) == view
    task = finder.runs[SHIPPED].trained().task
    for groups in view["groupings"].values():
        assert sum(group["count"] for group in groups) == view["wrong"]
        for example in groups[0]["examples"]:
            assert task.tokenize(" ".join(example["input"])) == example["input"]
            assert task.answer(example["input"]) == example["expected"] != example["output"]


def test_the_buttons_are_ready_again_after_cancelling_and_errors(finder: FailureFinder, tiny):
    work = finder.find(SHIPPED, "few")
    finder.cancellation.cancel(next(work)["ticket"])
    (last,) = work
    assert last["message"]["text"] == "Cancelled."
    RunFolder.create(finder.runs.root, tiny, name="empty", status="stopped")
    for run, reason in ((None, "No run is chosen"), ("empty", "no weights yet"), ("gone", "no such run")):
        (last,) = finder.find(run, "few")
        assert reason in last["message"]["text"]
        assert last["start"]["interactive"] is True


def test_an_unknown_choice_of_inputs_uses_the_first(finder: FailureFinder, monkeypatch):
    monkeypatch.setitem(INPUTS, next(iter(INPUTS)), INPUTS["few"])
    *_, last = finder.find(SHIPPED, "<script>")
    assert last["result"]["inputs"] == 300
