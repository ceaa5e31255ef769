"""Thousands of runs in one folder: listing them reads only what the list needs, and nothing that has not changed."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import core.runs.folder
from core.config import preset_to_yaml
from core.runs import RunInfo
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.server.ownership import Ownership
from core.server.run_list import MAX_LISTED
from ui.page import _run_to_open
from ui.run_info import list_runs

MOST_COLD, MOST_WARM = 3.0, 0.1  # seconds to list 10,000 runs after a start, and again


def make_runs(root: Path, preset, count: int) -> None:
    """Write the folders of so many finished runs, of ten owners in turn, as they are a while after their training."""
    yaml = preset_to_yaml(preset)
    for number in range(count):
        folder = root / f"tiny-{number}"
        folder.mkdir(parents=True)
        created = datetime.fromtimestamp(1e9 + number, UTC)
        (folder / "run.json").write_text(RunInfo(status="finished", created=created).model_dump_json(indent=1))
        (folder / "preset.yaml").write_text(yaml)
        (folder / "access.json").write_text(Ownership(owner=f"owner-{number % 10}").model_dump_json())
        os.utime(folder, (1e9, 1e9))


@pytest.fixture(autouse=True)
def without_the_cache_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.server.registry.LISTING_CACHE_SECONDS", 0.0)
    monkeypatch.setattr("core.server.registry.MAX_LISTING_SHARE", 1e9)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the status files and the presets that are read."""
    counts = {"run.json": 0, "preset.yaml": 0}
    genuine = {name: getattr(core.runs.folder.RunFolder, name) for name in ("written_info", "read_preset")}

    def counting(file: str, function: Callable) -> Callable:
        def call(*arguments):
            counts[file] += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(core.runs.folder.RunFolder, "written_info", counting("run.json", genuine["written_info"]))
    monkeypatch.setattr(core.runs.folder.RunFolder, "read_preset", counting("preset.yaml", genuine["read_preset"]))
    return counts


def test_listing_more_runs_than_any_cache_holds_reads_each_once(root: Path, tiny, read):
    count = 2_001
    make_runs(root, tiny, count)
    runs = Runs(root)
    assert len(list(runs)) == count
    assert list(runs)[:2] == ["tiny-2000", "tiny-1999"]
    assert read["run.json"] <= count + MAX_LISTED
    assert read["preset.yaml"] <= MAX_LISTED
    mine = VisitorRuns(runs, lambda: Visitor("owner-3"))
    assert len(list(mine)) == 200  # those of this visitor, and none that is shipped or shared
    assert len(list_runs(mine)["runs"]) == MAX_LISTED
    _run_to_open(VisitorRuns(runs))
    before = dict(read)
    for _ in range(3):
        assert len(list(runs)) == count
        assert len(list_runs(mine)["runs"]) == MAX_LISTED
        _run_to_open(VisitorRuns(runs))
    assert read == before


def test_a_run_that_changes_is_listed_as_it_is_now(root: Path, tiny):
    make_runs(root, tiny, 3)
    runs = Runs(root)
    ben = VisitorRuns(runs, lambda: Visitor("ben"))
    assert list(ben) == []
    for shared in (True, False):  # two changes within the time that a file system can tell apart
        (root / "tiny-1" / ".new").write_text(Ownership(owner="ben", shared=shared).model_dump_json())
        (root / "tiny-1" / ".new").rename(root / "tiny-1" / "access.json")
        assert runs.listings()[1].ownership == Ownership(owner="ben", shared=shared)
    assert list(ben) == ["tiny-1"]
    (root / "tiny-1" / "run.json").unlink()
    assert list(ben) == []


@pytest.mark.slow  # for a quiet machine: pytest -n 0 -m slow tests/faults/test_thousands_of_runs.py
def test_ten_thousand_runs_are_listed_in_three_seconds_and_then_in_a_tenth(root: Path, tiny):
    make_runs(root, tiny, 10_000)
    mine = VisitorRuns(Runs(root))
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        assert len(list_runs(mine)["runs"]) == MAX_LISTED
        seconds.append(time.perf_counter() - start)
    cold, warm = seconds[0], min(seconds[1:])
    print(f"\nlisted in {cold:.2f} s after a start, then in {1000 * warm:.0f} ms")
    assert cold <= MOST_COLD
    assert warm <= MOST_WARM
