"""Cleanup stops idle runs and deletes old ones, and nothing else."""

import os
import time
from pathlib import Path

import pytest

from core.runs import RunError, RunFolder
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.server.cleanup import Cleanup
from core.server.ownership import Ownership, write_ownership
from tests.support.run_helpers import LONG_TRAINING, wait_for, wait_for_status

AWAY = {"anna": 3600.0, "ben": 0.0, "cleo": 100.0, None: 3600.0}  # seconds; of Cleo, whose page is open but hidden


def tidied(runs: Runs) -> None:
    Cleanup(runs, lambda owner: AWAY[owner]).run_once()


def kept(root: Path, preset, name: str, *, hours: float = 0.0, owner: str | None = "anna", **told) -> None:
    """A run on disk of some age and owner."""
    folder = RunFolder.create(root, preset, name=name, status="stopped")
    folder.write_info(folder.read_info().model_copy(update={"shipped": told.pop("shipped", False)}))
    write_ownership(folder, Ownership(owner=owner, **told))
    (folder.path / "weights").write_bytes(bytes(400_000))
    at = time.time() - 3600 * hours
    for file in ("run.json", "access.json"):
        os.utime(folder.path / file, (at, at))


def test_only_runs_of_absent_owners_are_stopped_with_a_reason(make_runs, tiny):
    runs = make_runs(idle_minutes=30)
    for owner in ("anna", "ben"):
        runs.start(tiny.with_changes(LONG_TRAINING), name=owner, owner=owner)
    wait_for(lambda: runs["anna"].info.step > 0)
    runs.start(tiny.with_changes(LONG_TRAINING), name="waits", owner="anna")
    tidied(runs)
    info = wait_for_status(runs, "anna", "stopped")
    wait_for(lambda: "after 30 minutes without a visit" in runs["anna"].info.message)
    assert info.step > 0
    assert "without a visit" in runs["waits"].info.message
    wait_for(lambda: runs["ben"].info.status == "training")
    runs.resume("anna")
    wait_for(lambda: runs["anna"].info.step > info.step)


def test_a_run_is_stopped_at_the_time_limit(make_runs, tiny, monkeypatch):
    runs = make_runs(max_minutes=1)
    runs.start(tiny.with_changes(LONG_TRAINING), name="a")
    wait_for(lambda: runs["a"].info.step > 0)
    tidied(runs)
    assert runs["a"].info.status == "training"
    runs.active()[0].started_at -= 61
    tidied(runs)
    wait_for_status(runs, "a", "stopped")
    wait_for(lambda: "stopped after 1 minutes" in runs["a"].info.message)


def test_old_runs_are_deleted_unless_in_use_shared_shipped_or_without_owner(make_runs, tiny, root):
    runs = make_runs(keep_hours=24)
    kept(root, tiny, "old", hours=25)
    kept(root, tiny, "young", hours=23)
    kept(root, tiny, "of-who-is-here", hours=25, owner="ben")
    kept(root, tiny, "of-who-has-it-hidden", hours=25, owner="cleo")
    kept(root, tiny, "shared", hours=25, shared=True)
    kept(root, tiny, "gift", hours=25, shipped=True)
    kept(root, tiny, "nobodys", hours=25, owner=None)
    runs.start(tiny.with_changes(LONG_TRAINING), name="trains", owner="anna")
    os.utime(root / "trains" / "run.json", (0, 0))
    tidied(runs)
    in_use = {"of-who-is-here", "of-who-has-it-hidden", "trains"}
    assert set(list(runs)) == {"young", "shared", "gift", "nobodys"} | in_use


def test_over_the_disk_limit_only_as_many_old_runs_as_needed_are_deleted(make_runs, tiny, root):
    runs = make_runs(max_disk_mb=1)
    for age in (1, 4, 2, 3):
        kept(root, tiny, f"{age}-hours", hours=age)
    kept(root, tiny, "shared", hours=9, shared=True)
    tidied(runs)
    assert set(list(runs)) == {"1-hours", "shared"}
    tidied(runs)
    assert set(list(runs)) == {"1-hours", "shared"}


def test_shared_runs_never_cost_another_visitor_a_finished_run(make_runs, tiny, root):
    runs = make_runs(max_disk_mb=2, max_training_per_visitor=None)
    kept(root, tiny, "annas", hours=9)
    for age in range(1, 8):  # of cookies that a program invents; Ben has his page open
        kept(root, tiny, f"shared-{age}", hours=age, owner="ben" if age > 4 else "anna", shared=True)
    _ = VisitorRuns(runs, lambda: Visitor("cleo"))["shared-7"].info  # the oldest, which somebody opens now
    tidied(runs)
    assert set(list(runs)) == {"annas", "shared-7", "shared-1"} | {"shared-2"}
    tidied(runs)
    assert "annas" in list(runs)


def test_a_shared_run_that_nobody_opens_is_deleted(make_runs, tiny, root):
    runs = make_runs(keep_shared_hours=720)
    for name, hours in (("forgotten", 721), ("opened", 721), ("young", 719)):
        kept(root, tiny, name, hours=hours, shared=True)
    _ = VisitorRuns(runs, lambda: Visitor("cleo"))["opened"].info
    tidied(runs)
    assert set(list(runs)) == {"opened", "young"}


def test_runs_shared_from_one_network_take_an_eighth_of_the_disk(make_runs, tiny, root):
    runs = make_runs(max_disk_mb=8)
    visitor = [Visitor("anna", network="203.0.113.7")]
    shared = VisitorRuns(runs, lambda: visitor[0])
    for number in range(3):
        kept(root, tiny, f"run-{number}", owner=f"invented-{number}")
        visitor[0] = Visitor(f"invented-{number}", network="203.0.113.7")
        if number < 2:
            shared.share(f"run-{number}", True)
    with pytest.raises(RunError, match="runs shared from your network would take 1 MB, and the limit is 1 MB"):
        shared.share("run-2", True)
    visitor[0] = Visitor("invented-0", network="203.0.113.7")
    shared.share("run-0", False)
    visitor[0] = Visitor("invented-2", network="203.0.113.7")
    shared.share("run-2", True)


def test_without_limits_nothing_is_deleted(make_runs, tiny, root):
    kept(root, tiny, "old", hours=10_000)
    runs = make_runs()
    tidied(runs)
    assert list(runs) == ["old"]


def test_one_failed_deletion_does_not_stop_the_cleanup(make_runs, tiny, root, monkeypatch: pytest.MonkeyPatch):
    runs, genuine = make_runs(keep_hours=24), Runs.delete
    for name in ("first", "second"):
        kept(root, tiny, name, hours=25)

    def delete(self, name):
        if name == "first":
            raise OSError("the disk reports an error")
        genuine(self, name)

    monkeypatch.setattr(Runs, "delete", delete)
    tidied(runs)
    assert list(runs) == ["first"]


def test_a_clock_that_is_set_forward_by_a_day_deletes_no_run_and_ends_no_class(make_runs, tiny, root, monkeypatch):
    runs = make_runs(keep_hours=24)
    kept(root, tiny, "young", hours=1)
    taught = runs.classes.open("0" * 64, "192.0.2.7")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 24 * 3600)
    tidied(runs)
    assert list(runs) == ["young"]
    assert runs.classes.taught_by("0" * 64) == taught
