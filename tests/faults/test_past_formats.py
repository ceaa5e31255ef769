"""Runs of every past release, and the one that ships, still answer and go on."""

import shutil
from pathlib import Path

import pytest

from core.run_folder import RunFolder, list_runs
from core.run_folder.recording import continued_state, load_best
from core.training import new_state, train

REPOSITORY = Path(__file__).resolve().parents[2]
PAST = REPOSITORY / "tests" / "core" / "past_releases"


@pytest.mark.parametrize("release", sorted(PAST.iterdir()), ids=lambda path: path.name)
def test_a_past_release_loads(release, tmp_path, row):
    shutil.copytree(release, tmp_path / "runs")
    folders = list_runs(tmp_path / "runs")
    for folder in folders:
        assert load_best(folder, new_state(folder.preset()).model)["step"] == folder.info().best_step
        assert list(train(continued_state(folder)))[-1].reason == "finished"
    row("D5", f"runs of {release.name}", f"{len(folders)} runs", "each answers, and is continued to its end")


def test_the_shipped_run_loads(row):
    folder = RunFolder(REPOSITORY / "checkpoints", "digits-reversal-shipped")
    assert load_best(folder, new_state(folder.preset()).model)["step"] == folder.info().best_step
    row("D5", "the run that ships", "1 run", "answers")
