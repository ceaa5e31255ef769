"""The run menu: who may download, share and delete a run."""

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


def test_a_single_user_can_download_and_delete_but_not_share(runs: Runs, tiny):
    with_weights(runs, tiny, "mine")
    shown = run_menu_value(VisitorRuns(runs), "mine")
    files = {"file": "download/mine", "package": "download/mine.zip"}
    assert shown == files | {"run": "mine", "label": "mine", "shared": None, "deletable": True}
    shipped = run_menu_value(VisitorRuns(runs), SHIPPED)
    assert (shipped["file"], shipped["deletable"]) == (f"download/{SHIPPED}", False)
    assert run_menu_value(VisitorRuns(runs), None) == {"run": None}


def test_a_run_without_weights_cannot_be_downloaded(runs: Runs, tiny):
    RunFolder.create(runs.root, tiny, name="empty", status="stopped")
    shown = run_menu_value(VisitorRuns(runs), "empty")
    assert (shown["file"], shown["package"]) == (None, None)


def test_visitors_share_only_their_own_runs(runs: Runs, tiny):
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


def test_labels_in_the_run_bar_are_unique(runs: Runs, tiny):
    asks = Visitor("anna")
    for name in (f"bold-owl-{SUFFIX}", f"bold-owl-{SUFFIX[::-1]}", f"calm-fox-{SUFFIX}"):
        with_weights(runs, tiny, name)
        (runs.root / name / "access.json").write_text('{"owner": "anna", "shared": false}')
    listed = labeled_runs(VisitorRuns(runs, lambda: asks))["runs"]
    assert {each["label"] for each in listed} == {"bold-owl-a1b2", "bold-owl-6f5e", "calm-fox", SHIPPED}


@pytest.mark.parametrize("request_", [None, [], "x", {}, {"run": 3}, {"run": "a", "extra": 1}, {"run": "x" * 101}])
def test_malformed_menu_requests_return_an_error(runs: Runs, request_):
    menu = run_menu.run_menu(VisitorRuns(runs))
    for function in menu.server_fns:
        assert list(function(request_)) == ["error"]


def test_a_missing_run_is_named_in_the_error(runs: Runs):
    menu = run_menu.run_menu(VisitorRuns(runs))
    for function in menu.server_fns:
        request_ = {"run": "nobody"} | ({"shared": True} if function.__name__ == "share" else {})
        assert function(request_) == {"error": "run='nobody': there is no such run"}


def test_an_invalid_upload_is_refused_and_deleted(runs: Runs, tmp_path):
    for content in (b"", b"not a run"):
        file = tmp_path / "upload.safetensors"
        file.write_bytes(content)
        _, message = train.import_run(VisitorRuns(runs), str(file))
        assert message["problem"]
        assert not file.exists()
    assert train.import_run(VisitorRuns(runs), None)[1]["problem"]


def test_the_run_menu_inserts_text_only():
    assert "innerHTML" not in (FOLDER / "run_menu" / "run_menu.js").read_text()
