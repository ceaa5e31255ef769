"""Inference requests run one at a time and before training, which still advances."""

import threading
import time
from collections.abc import Callable

import pytest

from core.server.inference_priority import InferencePriority
from tests.support.run_helpers import wait_for_status

MAX_TRAINING_WAIT = 0.1


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.server.inference_priority.MAX_TRAINING_WAIT", MAX_TRAINING_WAIT)


@pytest.fixture
def right() -> InferencePriority:
    return InferencePriority()


def seconds_waited(right: InferencePriority) -> float:
    begun = time.monotonic()
    right.wait_for_inference()
    return time.monotonic() - begun


def test_training_does_not_wait_without_requests(right):
    assert min(seconds_waited(right) for _ in range(20)) < MAX_TRAINING_WAIT / 50


def test_training_waits_at_most_the_maximum_time(right):
    with right.inference():
        assert seconds_waited(right) >= MAX_TRAINING_WAIT
        assert min(seconds_waited(right) for _ in range(3)) < 2 * MAX_TRAINING_WAIT


def test_training_waits_for_nested_and_failed_requests(right):
    with right.inference():
        with pytest.raises(ZeroDivisionError), right.inference():
            raise ZeroDivisionError
        assert seconds_waited(right) >= MAX_TRAINING_WAIT
    assert min(seconds_waited(right) for _ in range(20)) < MAX_TRAINING_WAIT / 50


def test_training_continues_when_the_last_request_ends(right, monkeypatch):
    monkeypatch.setattr("core.server.inference_priority.MAX_TRAINING_WAIT", 60.0)
    began, go = threading.Event(), threading.Event()

    def answer() -> None:
        with right.inference():
            began.set()
            go.wait()

    thread = threading.Thread(target=answer)
    thread.start()
    began.wait()
    threading.Timer(0.05, go.set).start()
    assert seconds_waited(right) < 30
    thread.join()


def test_requests_run_one_at_a_time_unless_one_takes_too_long(right, monkeypatch):
    at_once, most, lock, four = 0, 0, threading.Lock(), threading.Barrier(4)

    def answer(work: Callable[[], object]) -> None:
        nonlocal at_once, most
        with right.inference():
            with lock:
                at_once += 1
                most = max(most, at_once)
            try:
                work()
            finally:
                with lock:
                    at_once -= 1

    def all_at_once(work: Callable[[], object]) -> int:
        nonlocal most
        most = 0
        threads = [threading.Thread(target=answer, args=(work,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return most

    assert all_at_once(lambda: time.sleep(0.005)) == 1
    monkeypatch.setattr("core.server.inference_priority.MAX_INFERENCE_WAIT", 0.05)
    assert all_at_once(lambda: four.wait(5)) == 4


def test_runs_finish_even_during_a_long_request(runs, tiny, monkeypatch):
    preset = tiny.with_changes({"training.steps": 3})
    genuine, waits = runs.inference_priority.wait_for_inference, []

    def wait() -> None:
        begun = time.monotonic()
        genuine()
        waits.append(time.monotonic() - begun)

    monkeypatch.setattr(runs.inference_priority, "wait_for_inference", wait)
    with runs.inference_priority.inference():
        name = runs.start(preset)
        assert wait_for_status(runs, name, "finished", "failed").status == "finished"
    assert len(waits) >= preset.training.steps
    assert min(waits) >= MAX_TRAINING_WAIT
