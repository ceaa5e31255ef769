"""The Compare tab: grouping, progress, results, cancellation and invalid selections."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from core.config import load_preset
from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from core.server.access import VisitorRuns
from tests.serving import SHIPPED
from tests.support.trainings import train_run
from ui.components.run_picker import _about, runs_by_task
from ui.tabs import cancellable, compare
from ui.tabs.compare import Comparer


def selection(*names: str) -> dict:
    """Return the picker's value with some runs ticked."""
    return {"chosen": list(names)}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, tiny) -> Runs:
    """A lab with two seeds of a preset, the same with a larger learning rate, one without weights, and another task."""
    torch.set_num_threads(1)
    root: Path = tmp_path_factory.mktemp("compared")
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    presets = {f"rev-seed-{seed}": tiny.with_changes({"training.seed": seed}) for seed in (1, 0)}
    presets["fast"] = tiny.with_changes({"training.learning_rate": 0.02})
    for name, preset in presets.items():
        folder = RunFolder.create(root, preset, name=name)
        train_run(folder)
    RunFolder.create(root, tiny.with_changes({"training.seed": 7}), name="empty", status="stopped")
    return Runs(root)


@pytest.fixture
def comparer(shelf: Runs, monkeypatch) -> Comparer:
    monkeypatch.setattr(compare, "SEQUENCES", 60)
    monkeypatch.setattr(compare, "INPUTS_PER_LENGTH", 5)
    monkeypatch.setattr(cancellable, "UPDATE_INTERVAL", 0.0)
    return Comparer(shelf)


def test_runs_are_grouped_by_task_and_by_settings_except_the_seed(shelf: Runs):
    (own, shipped) = sorted(runs_by_task(VisitorRuns(shelf))["tasks"], key=lambda task: -len(task["groups"]))
    assert (own["task"], shipped["task"]) == ("reverse 2–5 digits", "reverse 3–10 digits")
    groups = {group["label"]: group for group in own["groups"]}
    seeds = next(group for group in groups.values() if len(group["runs"]) == 3)
    assert [(run["id"], run["seed"]) for run in seeds["runs"]] == [("rev-seed-0", 0), ("rev-seed-1", 1), ("empty", 7)]
    assert [run["ready"] for run in seeds["runs"]] == [True, True, False]
    assert "preset tiny" in groups["fast"]["about"]
    assert "training.learning_rate 0.008 → 0.02" in groups["fast"]["about"]
    assert "seed" not in groups["fast"]["about"]
    assert own["rivals"] == []
    assert shipped["rivals"][0] == "digits-reversal-fast"  # the quickest preset of that task


def test_progress_is_yielded_before_a_json_serializable_result(comparer: Comparer):
    *before, last = comparer.compare(selection("rev-seed-0", "rev-seed-1", "fast"))
    assert before
    for updates in before:
        assert updates["ticket"]
        assert 0 < updates["result"]["progress"]["done"] <= 1
        assert (updates["start"]["interactive"], updates["cancel"]["interactive"]) == (False, True)
    assert (last["ticket"], last["message"]["text"]) == (None, "")
    assert (last["start"]["interactive"], last["cancel"]["interactive"]) == (True, False)
    view = last["result"]
    assert json.loads(json.dumps(view, allow_nan=False)) == view  # so every key is a text
    assert [group["label"] for group in view["groups"]] == ["rev", "fast"]
    assert view["settings"] == {"training.learning_rate": [0.01, 0.02]}
    assert view["lengths"]["trained"] == [2, 5]


def test_comparing_the_same_runs_again_uses_the_cache(comparer: Comparer):
    first = list(comparer.compare(selection("rev-seed-0", "fast")))[-1]
    (again,) = comparer.compare(selection("rev-seed-0", "fast"))
    assert again["result"]["pairs"] == first["result"]["pairs"]


def test_cancelling_stops_the_comparison_at_its_next_event(comparer: Comparer):
    work = comparer.compare(selection("rev-seed-0", "fast"))
    ticket = next(work)["ticket"]
    comparer.cancellation.cancel("somebody else's")
    assert next(work)["ticket"] == ticket
    comparer.cancellation.cancel(ticket)
    (last,) = work
    assert (last["message"]["text"], last["result"]) == ("Cancelled.", None)
    assert last["start"]["interactive"] is True


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (["fast"], "1 selected"),
        ([f"run-{number}" for number in range(11)], "11 selected"),
        (["fast", SHIPPED], "different tasks"),
        (["fast", "empty"], "no weights yet"),
        (["fast", "../../etc"], "is not a valid name"),
        (["fast", "gone"], "there is no such run"),
        (["fast", "fast"], "twice"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_invalid_selections_are_explained(comparer: Comparer, chosen, reason):
    (last,) = comparer.compare(selection(*chosen))
    assert last["message"]["problem"]
    assert reason in last["message"]["text"]
    assert last["start"]["interactive"] is True


def test_the_address_selects_runs_and_starts_the_comparison_on_its_tab(shelf: Runs):
    spec = {"compare": f"fast,gone,rev-seed-0,fast,<script>,{'x' * 5000}"}
    two = ["fast", "rev-seed-0"]
    assert compare.picker_value(shelf, spec) == {"chosen": two, "start": False}
    assert compare.picker_value(shelf, spec | {"tab": "compare"}) == {"chosen": two, "start": True}
    one = {"tab": "compare", "compare": "fast"}
    assert compare.picker_value(shelf, one) == {"chosen": ["fast"], "start": False}
    assert compare.picker_value(shelf, {}) == {"chosen": [], "start": False}


@pytest.mark.parametrize("value", [None, {"chosen": "fast"}, {"chosen": [1, None]}, {"chosen": ["x" * 9999] * 99}])
def test_malformed_selections_are_explained(comparer: Comparer, value):
    (last,) = comparer.compare(value)
    assert last["message"]["problem"]
    assert len(last["message"]["text"]) < 500


def test_a_preset_that_is_not_shipped_is_described_by_its_name():
    preset = load_preset("tiny").model_copy(update={"name": "mine"})
    assert _about(preset) == "preset mine"
