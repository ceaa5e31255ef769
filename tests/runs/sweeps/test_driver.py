"""The driver: every run once, whatever was done before, and no more at a time than there is room for."""

import json
import threading
import time
from collections import Counter
from functools import partial
from typing import ClassVar

from core.runs import RunFolder
from core.runs.sweeps.cluster import NODE_LOST
from core.runs.sweeps.driver import MAX_ATTEMPTS, Driver
from core.runs.sweeps.folder import SweepFolder
from core.runs.sweeps.training import reported, sweep_training
from core.runs.sweeps.trials import grid_trials
from tests.runs.sweeps.conftest import ThreadProcess, make_sweep
from tests.support.trainings import train_run

SHORT = {"training.steps": 3, "training.evaluate_every": 3, "training.validation_sequences": 4}
SHORT |= {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1}
small_sweep = partial(make_sweep, axes={"model.d_model": [16, 32]}, set=SHORT)  # two trials of two seeds


def statuses(results) -> Counter:
    return Counter(result.status for result in results)


def test_every_run_of_a_grid_is_trained_once_and_never_again(drive, root, tiny):
    sweep = small_sweep()
    results = drive(sweep)
    names = {trial.run(seed) for trial in grid_trials(sweep, tiny) for seed in (0, 1)}
    assert ({result.run for result in results}, statuses(results)) == (names, {"done": 4})
    assert {path.name for path in root.iterdir()} == names | {"s.sweep"}
    for result in results:
        info = RunFolder(root, result.run).read_info()
        assert (info.status, len(info.provenance), info.validation.validation_loss) == ("finished", 1, result.value)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("run.json")}
    assert statuses(drive(sweep)) == {"skipped": 4}
    assert {path: path.stat().st_mtime_ns for path in root.rglob("run.json")} == before


def test_what_was_broken_off_is_resumed_and_the_rest_trained(drive, root, tiny):
    first, second = grid_trials(small_sweep(), tiny)
    with sweep_training(RunFolder(root, first.run(0)), first.run_preset(0)) as run:
        list(reported(run, minutes=None, reasons=["stopped"]))
    train_run(RunFolder.create(root, second.run_preset(1), name=second.run(1)))
    assert statuses(drive(small_sweep())) == {"done": 3, "skipped": 1}
    assert [session.step for session in RunFolder(root, first.run(0)).read_info().provenance] == [0, 1]


def test_stopping_saves_what_trains_and_starts_no_more(drive, root, tiny, monkeypatch):
    sweep = small_sweep()
    stopped = threading.Event()

    class Slow(ThreadProcess):
        def train(self):
            stopped.wait(5)
            super().train()

        def stop(self):
            super().stop()
            stopped.set()

    genuine = Driver._fill

    def fill_and_stop(driver):
        genuine(driver)
        driver.stop()

    with monkeypatch.context() as context:
        context.setattr(Driver, "_fill", fill_and_stop)
        assert statuses(drive(sweep, process=Slow)) == {"stopped": 2}
    assert {RunFolder(root, path.parent.name).read_info().status for path in root.glob("*/run.json")} == {"stopped"}
    assert statuses(drive(sweep)) == {"done": 4}


def test_a_run_whose_process_is_killed_is_resumed_at_once_and_given_up_after_three_times(drive, root):
    class Killed(ThreadProcess):
        started: ClassVar[Counter] = Counter()

        def train(self):
            self.started[self.request.run] += 1
            if "dm16" in self.request.run and self.started[self.request.run] < MAX_ATTEMPTS:
                return
            if "dm32" in self.request.run:
                self.code = -9
                return
            super().train()

    results = drive(small_sweep(), process=Killed)
    assert statuses(results) == {"done": 2, "failed": 2}
    assert set(Killed.started.values()) == {MAX_ATTEMPTS}
    assert {result.message for result in results if result.status == "failed"} == {"it says why"}


def test_a_run_whose_node_is_lost_is_resumed_however_often(drive):
    class OnLostNodes(ThreadProcess):
        started: ClassVar[Counter] = Counter()

        def train(self):
            self.started[self.request.run] += 1
            if self.started[self.request.run] <= MAX_ATTEMPTS + 1:
                self.code = NODE_LOST
                return
            if self.started[self.request.run] <= MAX_ATTEMPTS + 2:
                self.code = -9  # the first attempt that counts
                return
            super().train()

    assert statuses(drive(small_sweep(seeds=1), process=OnLostNodes)) == {"done": 2}
    assert set(OnLostNodes.started.values()) == {MAX_ATTEMPTS + 3}


def test_a_run_that_fails_is_reported_with_its_reason_and_the_others_go_on(drive, root, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: float("nan"))
    results = drive(small_sweep(seeds=1))
    assert statuses(results) == {"failed": 2}
    assert all("not finite" in result.message for result in results)


def test_a_run_that_another_process_trains_is_waited_for(drive, root, tiny, monkeypatch):
    monkeypatch.setattr("core.runs.sweeps.driver._POLL_SECONDS", 0.05)
    trial = grid_trials(small_sweep(), tiny)[0]
    folder = RunFolder.create(root, trial.run_preset(0), name=trial.run(0))
    lock = folder.lock()

    class ThreeThenTheOther(ThreadProcess):
        trained: ClassVar[list[str]] = []

        def train(self):
            super().train()
            self.trained.append(self.request.run)
            if len(self.trained) == 3:
                lock.release()
                train_run(folder)

    results = drive(small_sweep(), process=ThreeThenTheOther)
    assert statuses(results) == {"done": 3, "skipped": 1}
    assert (results[-1].run, results[-1].status) == (trial.run(0), "skipped")


def test_extending_adds_seeds_and_values(drive, root):
    drive(small_sweep(axes={"model.d_model": [16]}, seeds=1))
    assert statuses(drive(small_sweep(), extend=True)) == {"skipped": 1, "done": 3}


def test_parts_of_a_grid_are_disjoint_and_complete(drive, root):
    parts = [drive(small_sweep(), part=(index, 3)) for index in range(3)]
    assert [len(part) for part in parts] == [2, 1, 1]
    assert len({result.run for part in parts for result in part}) == 4


def test_no_more_runs_at_a_time_than_jobs_and_memory_allow(drive):
    class Counted(ThreadProcess):
        now, most = 0, 0
        lock = threading.Lock()

        def train(self):
            with self.lock:
                Counted.now += 1
                Counted.most = max(Counted.most, Counted.now)
            super().train()
            with self.lock:
                Counted.now -= 1

    assert statuses(drive(small_sweep(), jobs=3, process=Counted)) == {"done": 4}
    assert Counted.most == 3
    Counted.most = 0
    assert statuses(drive(small_sweep(name="t", seeds=1), jobs=3, memory=60, process=Counted)) == {"done": 2}
    assert Counted.most == 1


def test_a_trial_is_recorded_with_its_settings_only(drive, root):
    drive(small_sweep(seeds=1))
    (path, *rest) = sorted((SweepFolder(root, "s").path / "trials").iterdir())
    assert len(rest) == 1
    assert json.loads(path.read_text()) == {
        "settings": {"model.d_model": 16},
        "number": None,
        "pruned": None,
        "stopped": False,
    }


def test_a_stopped_trial_is_saved_and_trained_no_more_and_the_others_go_on(drive, root, tiny, monkeypatch):
    first = grid_trials(small_sweep(), tiny)[0]
    drivers = []
    genuine = Driver._fill

    def fill_and_stop_one(driver):
        genuine(driver)
        if not drivers:
            driver.stop_trial(first.name)
            drivers.append(driver)

    monkeypatch.setattr(Driver, "_fill", fill_and_stop_one)

    class Waiting(ThreadProcess):
        """The first trial's processes end only when they are stopped."""

        def train(self):
            until = time.monotonic() + 10
            while first.name in self.request.run and not self._reasons and time.monotonic() < until:
                time.sleep(0.01)
            super().train()

    assert statuses(drive(small_sweep(), jobs=1, process=Waiting)) == {"stopped": 2, "done": 2}
    assert SweepFolder(root, "s").record(first.name).stopped
    assert statuses(drive(small_sweep())) == {"skipped": 2}
    assert not RunFolder(root, first.run(1)).exists()


def test_runs_give_way_when_there_is_less_room_and_are_resumed(drive, root, monkeypatch):
    monkeypatch.setattr("core.runs.sweeps.driver._POLL_SECONDS", 0.02)
    room = [2]

    class Yielding(ThreadProcess):
        """The first two run until one is stopped."""

        first_two: ClassVar[list["Yielding"]] = []

        def train(self):
            if len(self.first_two) < 2:
                self.first_two.append(self)
                if len(self.first_two) == 2:
                    room[0] = 1
                until = time.monotonic() + 10
                while not any(each._reasons for each in self.first_two) and time.monotonic() < until:
                    time.sleep(0.01)
                room[0] = 2
            super().train()

    results = drive(small_sweep(), process=Yielding, room=lambda: room[0])
    assert statuses(results) == {"done": 4}
    resumed = [
        path.parent.name
        for path in root.glob("*/run.json")
        if len(RunFolder(root, path.parent.name).read_info().provenance) > 1
    ]
    assert resumed == [Yielding.first_two[1].request.run]


def test_a_sweep_waits_while_there_is_no_room_at_all(drive, monkeypatch):
    monkeypatch.setattr("core.runs.sweeps.driver._POLL_SECONDS", 0.02)
    asked = []

    def room() -> int:
        asked.append(None)
        return 0 if len(asked) < 10 else 2

    assert statuses(drive(small_sweep(seeds=1), room=room)) == {"done": 2}
