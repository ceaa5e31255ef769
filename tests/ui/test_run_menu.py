"""What can be done with a run as a whole, and for whom: the menu under the bar."""

import shutil

import pytest

from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.server.limits import PUBLIC
from tests.serving import SHIPPED
from ui.components import run_menu
from ui.components.component import FOLDER
from ui.components.run_bar import labeled_runs
from ui.components.run_menu import run_menu_value
from ui.tabs import train

SUFFIX = "a1b2c3d4e5f6a1b2c3d4e5f6"


@pytest.fixture
def runs(tmp_path) -> Runs:
    shutil.copytree(DEFAULT_ROOT / SHIPPED, tmp_path / SHIPPED)
    return Runs(tmp_path, limits=PUBLIC)


def with_weights(runs: Runs, preset, name: str) -> RunFolder:
    folder = RunFolder.create(runs.root, preset, name=name, status="stopped")
    shutil.copy(runs.root / SHIPPED / "best.safetensors", folder.best)
    return folder


def test_one_person_may_take_away_and_delete_their_runs_and_sharing_is_not_offered(runs: Runs, tiny):
    with_weights(runs, tiny, "mine")
    shown = run_menu_value(VisitorRuns(runs), "mine")
    files = {"file": "download/mine", "package": "download/mine.zip"}
    assert shown == files | {"run": "mine", "label": "mine", "shared": None, "deletable": True}
    shipped = run_menu_value(VisitorRuns(runs), SHIPPED)
    assert (shipped["file"], shipped["deletable"]) == (f"download/{SHIPPED}", False)
    assert run_menu_value(VisitorRuns(runs), None) == {"run": None}


def test_a_run_without_weights_is_not_offered_to_be_taken_away(runs: Runs, tiny):
    RunFolder.create(runs.root, tiny, name="empty", status="stopped")
    shown = run_menu_value(VisitorRuns(runs), "empty")
    assert (shown["file"], shown["package"]) == (None, None)


def test_a_visitor_shares_their_run_and_no_other(runs: Runs, tiny):
    asks = Visitor("anna")
    visiting = VisitorRuns(runs, lambda: asks)
    name = f"bold-owl-{SUFFIX}"
    with_weights(runs, tiny, name)
    (runs.root / name / "access.json").write_text('{"owner": "anna", "shared": false}')
    assert run_menu_value(visiting, name)["label"] == "bold-owl"
    assert run_menu.share(visiting, run_menu.ShareRequest(run=name, shared=True))["shared"] is True
    asks = Visitor("ben")
    shown = run_menu_value(visiting, name)
    assert (shown["shared"], shown["deletable"], shown["file"]) == (None, False, f"download/{name}")


def test_short_names_in_the_bar_tell_two_runs_apart(runs: Runs, tiny):
    asks = Visitor("anna")
    for name in (f"bold-owl-{SUFFIX}", f"bold-owl-{SUFFIX[::-1]}", f"calm-fox-{SUFFIX}"):
        with_weights(runs, tiny, name)
        (runs.root / name / "access.json").write_text('{"owner": "anna", "shared": false}')
    listed = labeled_runs(VisitorRuns(runs, lambda: asks))["runs"]
    assert {each["label"] for each in listed} == {"bold-owl-a1b2", "bold-owl-6f5e", "calm-fox", SHIPPED}


@pytest.mark.parametrize("question", [None, [], "x", {}, {"run": 3}, {"run": "a", "extra": 1}, {"run": "x" * 101}])
def test_a_menu_is_asked_for_nothing_that_makes_no_sense(runs: Runs, question):
    menu = run_menu.run_menu(VisitorRuns(runs))
    for function in menu.server_fns:
        assert list(function(question)) == ["error"]


def test_a_run_that_is_not_there_is_told_in_words(runs: Runs):
    menu = run_menu.run_menu(VisitorRuns(runs))
    for function in menu.server_fns:
        question = {"run": "nobody"} | ({"shared": True} if function.__name__ == "share" else {})
        assert function(question) == {"error": "run='nobody': there is no such run"}


def test_a_file_that_is_no_run_is_refused_and_deleted(runs: Runs, tmp_path):
    for content in (b"", b"not a run"):
        file = tmp_path / "upload.safetensors"
        file.write_bytes(content)
        _, said = train.import_run(VisitorRuns(runs), str(file))
        assert said["problem"]
        assert not file.exists()
    assert train.import_run(VisitorRuns(runs), None)[1]["problem"]


def test_the_script_puts_names_on_the_page_as_text_only():
    assert "innerHTML" not in (FOLDER / "run_menu" / "run_menu.js").read_text()
