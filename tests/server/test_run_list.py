"""Lists of runs: the latest, those that match a search among all, and how many are left out."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from core.runs import RunFolder
from core.server import Runs
from core.server.access import VisitorRuns
from ui.components.run_picker import PickerRequest, runs_by_task
from ui.run_info import list_runs

LISTED, SEARCHED = 3, 8


@pytest.fixture
def mine(root: Path, tiny, monkeypatch: pytest.MonkeyPatch) -> VisitorRuns:
    """Ten runs, of which lists show three and a search reads eight: run-0 is the oldest, odd ones learn copying."""
    monkeypatch.setattr("core.server.run_list.MAX_LISTED", LISTED)
    monkeypatch.setattr("core.server.run_list.MAX_SEARCHED", SEARCHED)
    for number in range(10):
        preset = tiny.with_changes({"task.transform": "copy"} if number % 2 else {})
        folder = RunFolder.create(root, preset, name=f"run-{number}", status="stopped")
        created = datetime.fromtimestamp(1e9 + number, UTC)
        folder.write_info(folder.read_info().model_copy(update={"created": created}))
    return VisitorRuns(Runs(root))


def names(found) -> list[str]:
    return [row.name for row in found.rows]


def test_without_a_search_the_latest_are_listed_and_the_others_counted(mine: VisitorRuns):
    found = mine.find()
    assert (names(found), found.unlisted, found.unsearched) == (["run-9", "run-8", "run-7"], 7, 0)


@pytest.mark.parametrize(
    ("search", "expected", "unlisted"),
    [
        ("run-2", ["run-2"], 0),  # one that the list leaves out
        ("COPY tiny", ["run-9", "run-7", "run-5"], 1),  # task and preset
        ("stopped 4", ["run-4"], 0),
        ("nothing like this", [], 0),
    ],
)
def test_a_search_finds_runs_that_the_list_leaves_out(mine: VisitorRuns, search: str, expected: list, unlisted: int):
    found = mine.find(search)
    assert (names(found), found.unlisted) == (expected, unlisted)
    assert found.unsearched == 10 - SEARCHED


def test_a_run_is_found_by_its_title_and_by_its_task(mine: VisitorRuns):
    mine.rename("run-3", "Größe zwei")
    assert names(mine.find("GRÖßE")) == ["run-3"]
    task = mine["run-3"].preset.task.summary
    assert names(mine.find("", task=task)) == ["run-9", "run-7", "run-5"]
    assert mine.find("", task=task[:-1]).rows == ()


def test_a_list_keeps_chosen_runs_that_the_visitor_may_see(mine: VisitorRuns):
    found = mine.find(keep=["run-0", "run-9", "nobodys-run"])
    assert (names(found), found.unlisted) == (["run-9", "run-8", "run-7", "run-0"], 6)
    assert names(mine.find("run-2", keep=["run-5"])) == ["run-2", "run-5"]
    found = mine.find("copy", keep=["run-3"])  # which matches, and is the fourth
    assert (names(found), found.unlisted) == (["run-9", "run-7", "run-5", "run-3"], 0)


def test_menu_compare_and_start_from_search_alike(mine: VisitorRuns, tiny):
    (menu,) = list_runs(mine, "run-2")["runs"]
    (task,) = runs_by_task(mine, PickerRequest(search="run-2"))["tasks"]
    assert menu["id"] == task["groups"][0]["runs"][0]["id"] == "run-2"
    assert runs_by_task(mine)["unlisted"] == list_runs(mine)["unlisted"] == 7
    assert (mine.starting_points(tiny).unlisted, mine.starting_points(tiny, "run-2").unlisted) == (7, 0)
