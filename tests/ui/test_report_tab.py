"""The Report tab: missing, written and outdated reports, and malformed requests."""

import base64
import io
import shutil
import zipfile
from pathlib import Path

import pytest

from core.reports.report import REPORT_FILES
from core.runs import DEFAULT_ROOT, RunFolder
from core.server import Runs
from tests.serving import SHIPPED
from tests.ui.server_functions import call
from ui.components.report_view import report_view
from ui.tabs import report

DONE = "done"


@pytest.fixture
def fresh(tmp_path: Path, trained: Path) -> Runs:
    """A lab of its own with the shipped run and a smaller one, without reports."""
    root = tmp_path / "checkpoints"
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED, ignore=shutil.ignore_patterns("report"))
    shutil.copytree(trained / DONE, root / DONE)
    return Runs(root)


def test_a_report_is_written_shown_and_marked_as_outdated(fresh: Runs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report, "SEQUENCES", 50)
    updates = report.run_updates(fresh, DONE)
    message, view = updates["report_message"], updates["report"]
    assert f"No report on {DONE} yet" in message["text"]
    assert view == {"run": DONE, "written": None, "begins": True}
    assert call(report_view(fresh), "saved", {"run": DONE}) == {"error": "this run has no report yet"}
    assert call(report_view(fresh), "bundle", {"run": DONE}) == {"error": "this run has no report yet"}

    assert "0 of 50 held-out inputs" in report.write(fresh, DONE)["report_message"]["text"]
    assert report._written(fresh, DONE)["button"]["interactive"] is True
    updates = report.run_updates(fresh, DONE)
    message, view = updates["report_message"], updates["report"]
    assert message["text"] == ""
    assert view["written"] > 0
    assert f"<h1>Report: {DONE}</h1>" in call(report_view(fresh), "saved", {"run": DONE})["html"]
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(call(report_view(fresh), "bundle", {"run": DONE})["zip"])))
    assert sorted(archive.namelist()) == sorted(f"{DONE}-report/{name}" for name in REPORT_FILES)

    folder = RunFolder(fresh.root, DONE)
    folder.write_info(folder.read_info().model_copy(update={"best_step": 7}))
    message = report.run_updates(fresh, DONE)["report_message"]
    assert "earlier checkpoint" in message["text"]
    (folder.report / "report.json").write_text("{")
    assert "earlier checkpoint" in report.run_updates(fresh, DONE)["report_message"]["text"]


def test_a_report_that_cannot_be_written_shows_an_error_and_enables_the_button(fresh: Runs, monkeypatch):
    monkeypatch.setattr(report, "SEQUENCES", 20)
    folder = RunFolder(fresh.root, DONE)
    folder.metrics.unlink()  # there are no curves to draw
    folder.report.write_text("in the way")
    message = report.write(fresh, DONE)["report_message"]
    assert message["problem"]
    assert "the report cannot be written to report: File exists" in message["text"]
    assert report._written(fresh, DONE)["button"]["interactive"] is True


def test_a_missing_run_or_missing_weights_is_explained(fresh: Runs, tiny):
    assert "No run is chosen" in report.write(fresh, None)["report_message"]["text"]
    assert report.run_updates(fresh, None)["report"] == report.NO_REPORT
    RunFolder.create(fresh.root, tiny, name="empty", status="stopped")
    assert report.run_updates(fresh, "empty")["report"]["begins"] is False
    message = report.write(fresh, "empty")["report_message"]
    assert message["problem"]
    assert "no weights yet" in message["text"]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"run": "../../etc/passwd"}, "is not a valid name"),
        ({"run": f"{SHIPPED}/.."}, "is not a valid name"),
        (None, "None should be a mapping"),
        ({"run": "no-such-run"}, "there is no such run"),
        ({"run": SHIPPED, "file": "x"}, "file is not a known key"),
    ],
    ids=str,
)
def test_malformed_report_requests_return_an_error(fresh: Runs, request_, reason: str):
    for name in ("saved", "bundle"):
        answer = call(report_view(fresh), name, request_)
        assert list(answer) == ["error"]
        assert reason in answer["error"]
