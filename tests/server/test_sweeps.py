"""Sweeps on the server: one at a time, beside the page's own trainings, stopped and continued."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config import ConfigError
from core.runs import RunFolder
from core.runs.sweeps.folder import SweepError, SweepFile
from core.server import Runs
from core.server.access import Visitor, VisitorRuns
from core.storage.errors import UnavailableError
from tests.runs.sweeps.conftest import Held, make_sweep, train_in_threads
from tests.support.run_helpers import wait_for


@pytest.fixture
def runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    train_in_threads(monkeypatch, Held)
    monkeypatch.setattr("core.runs.sweeps.driver._POLL_SECONDS", 0.02)
    monkeypatch.setattr("core.server.sweeps.TABLE_SECONDS", 0.0)
    monkeypatch.setattr("core.server.sweeps.usable_cores", lambda: 2)
    Held.release.clear()
    runs = Runs(root)
    yield runs
    Held.release.set()
    runs.close()


def begin(runs: Runs, tiny, *, jobs: int = 2, **fields) -> SweepFile:
    file = SweepFile(
        sweep=make_sweep(axes={"model.d_model": [16, 32]}, **fields),
        base=tiny.with_changes({"training.steps": 4, "training.validation_sequences": 4}),
    )
    runs.sweeps.start(file, jobs=jobs, pairs=None)
    return file


def status(runs: Runs) -> str:
    return runs.sweeps.progress("s").status


def test_a_sweep_is_watched_to_its_end(runs, tiny):
    begin(runs, tiny)
    wait_for(lambda: len(runs.sweeps.training()) == 2)
    progress = runs.sweeps.progress("s")
    assert (progress.status, progress.jobs, progress.room) == ("training", 2, 2)
    assert progress.counts | {"total": 2, "running": 1, "waiting": 1} == progress.counts
    with pytest.raises(SweepError, match="sweep='s' is being trained; stop it"):
        begin(runs, tiny, name="t")
    Held.release.set()
    wait_for(lambda: status(runs) == "idle")
    assert runs.sweeps.progress("s").counts["complete"] == 2
    assert (runs.sweeps.active(), runs.sweeps.training()) == (None, [])


def test_stopping_twice_saves_what_trains_and_starting_again_continues(runs, tiny):
    file = begin(runs, tiny)
    wait_for(lambda: len(runs.sweeps.training()) == 2)
    runs.sweeps.stop()
    runs.sweeps.stop()
    wait_for(lambda: status(runs) == "idle")
    runs.sweeps.stop()
    assert runs.sweeps.progress("s").error == ""
    Held.release.set()
    runs.sweeps.start(file, jobs=1, pairs=None)
    wait_for(lambda: status(runs) == "idle")
    assert runs.sweeps.progress("s").counts["complete"] == 2


def test_closing_the_server_saves_the_sweep(runs, tiny, root):
    begin(runs, tiny)
    wait_for(lambda: len(runs.sweeps.training()) == 2)
    names = runs.sweeps.training()
    runs.close()
    assert runs.sweeps.active() is None
    assert {RunFolder(root, name).read_info().status for name in names} == {"stopped"}
    assert Runs(root).sweeps.progress("s").counts["waiting"] == 2  # a new server finds it


def test_the_trainings_of_the_page_go_first(runs, tiny, monkeypatch):
    busy = [2]
    monkeypatch.setattr(runs.sweeps, "_busy_cores", lambda: busy[0])
    begin(runs, tiny)
    wait_for(lambda: runs.sweeps.progress("s").room == 0)
    assert runs.sweeps.training() == []
    busy[0] = 1
    wait_for(lambda: len(runs.sweeps.training()) == 1)
    busy[0] = 0
    wait_for(lambda: len(runs.sweeps.training()) == 2)
    busy[0] = 1
    wait_for(lambda: len(runs.sweeps.training()) == 1)
    Held.release.set()
    busy[0] = 0
    wait_for(lambda: status(runs) == "idle")
    assert runs.sweeps.progress("s").counts["complete"] == 2


def test_the_busy_cores_are_those_of_the_runs_that_train(runs, tiny):
    assert runs.sweeps.room() == 2
    run = runs.start(tiny.with_changes({"training.steps": 100_000}))
    wait_for(lambda: runs.sweeps.room() == 1)
    runs.stop(run)
    wait_for(lambda: runs.sweeps.room() == 2)


def test_stopping_a_run_of_a_sweep_stops_its_trial(runs, tiny):
    begin(runs, tiny, jobs=1)
    wait_for(lambda: runs.sweeps.training() != [])
    run = runs.sweeps.training()[0]
    runs.stop(run)
    wait_for(lambda: runs.sweeps.progress("s").counts["stopped"] == 1)
    with pytest.raises(SweepError, match="trial='nothing'"):
        runs.sweeps.stop_trial("s", "nothing")
    Held.release.set()
    wait_for(lambda: status(runs) == "idle")
    assert runs.sweeps.progress("s").counts | {"complete": 1, "stopped": 1} == runs.sweeps.progress("s").counts
    with pytest.raises(SweepError, match="not being trained here"):
        runs.sweeps.stop_trial("s", run.rpartition("-seed-")[0])


def test_what_cannot_succeed_is_refused_before_anything_is_written(runs, tiny, root, monkeypatch):
    with pytest.raises(ConfigError, match="jobs=3 must be from 1 to 2"):
        begin(runs, tiny, jobs=3)
    monkeypatch.setattr("core.runs.sweeps.checks._OTHER_BYTES", 10**15)
    with pytest.raises(ConfigError, match="MB of disk space"):
        begin(runs, tiny)
    assert not root.exists() or list(root.iterdir()) == []
    assert runs.sweeps.active() is None


def test_an_error_of_the_driver_is_shown_and_another_sweep_can_start(runs, tiny, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr("core.runs.sweeps.driver.Driver._fill", lambda driver: 1 / 0)
        begin(runs, tiny)
        wait_for(lambda: status(runs) == "idle")
    assert "division" in runs.sweeps.progress("s").error
    Held.release.set()
    begin(runs, tiny)
    wait_for(lambda: status(runs) == "idle")
    assert runs.sweeps.progress("s").counts["complete"] == 2


def test_a_search_that_draws_no_other_settings_ends_and_nothing_waits(runs, tiny, root):
    pytest.importorskip("optuna")
    Held.release.set()
    for trials in (5, 6):  # and so does one that is extended
        sweep = make_sweep(axes={"model.norm": ["pre", "post"]}, search="random", trials=trials)
        file = SweepFile(sweep=sweep, base=tiny.with_changes({"training.steps": 4}))
        runs.sweeps.start(file, jobs=1, pairs=None, extend=True)
        wait_for(lambda: status(runs) == "idle")
        for progress in (runs.sweeps.progress("s"), Runs(root).sweeps.progress("s")):
            assert progress.error == "no other valid settings were drawn"
            assert progress.counts | {"complete": 2, "waiting": 0, "total": trials} == progress.counts


def test_visitors_have_no_sweeps(runs):
    with pytest.raises(UnavailableError, match="switched off on a public server"):
        _ = VisitorRuns(runs, lambda: Visitor("anna")).sweeps
