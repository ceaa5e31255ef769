"""Every folder of runs that the page serves has the runs that ship."""

import shutil
from pathlib import Path

import pytest

from core.runs import DEFAULT_ROOT, list_runs
from core.runs.load import load_run
from core.runs.shipped import add_shipped_runs
from tests.serving import SHIPPED


def names(root: Path) -> set[str]:
    return {folder.name for folder in list_runs(root)}


def test_a_new_folder_gets_the_runs_that_ship_once(tmp_path: Path):
    root = tmp_path / "disk" / "checkpoints"
    add_shipped_runs(root)
    shipped = {path.name for path in DEFAULT_ROOT.glob("*-shipped")}
    assert names(root) == shipped
    assert load_run(root / SHIPPED).step == load_run(DEFAULT_ROOT / SHIPPED).step
    marker = root / SHIPPED / "title.json"
    marker.write_text("{}")
    add_shipped_runs(root)
    assert marker.exists()  # what is there is left as it is
    assert {path.name for path in root.iterdir()} == shipped  # no draft


def test_a_full_disk_leaves_nothing_half_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog):
    def full(source: Path, target: Path) -> None:
        target.mkdir(parents=True)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    add_shipped_runs(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in caplog.text
