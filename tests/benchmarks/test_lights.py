"""How much examining a run in training slows it: ``pytest -m slow -s tests/benchmarks/test_lights.py``."""

import threading
import time
from statistics import median

import pytest

from core.config import load_preset
from core.server import Runs
from core.server.access import VisitorRuns
from tests.support.run_helpers import wait_for
from ui.components.doctor import Doctor

SECONDS = 8.0  # of an interval
INTERVALS = 5  # with the doctor's examination, and as many without, interleaved
SECONDS_BETWEEN_EXAMINATIONS = 4.0  # as of an open page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits-reversal", "psalms"])
def test_the_doctor_slows_a_training_by_less_than_a_fifth(name, root):
    runs = VisitorRuns(Runs(root))
    run = runs.start(load_preset(name).with_changes({"training.steps": 100_000}))
    wait_for(lambda: runs[run].info.step > 5, seconds=60)
    doctor, is_examining, is_over = Doctor(runs), threading.Event(), threading.Event()

    def examine() -> None:
        while is_examining.wait() and not is_over.is_set():
            doctor.examine({"run": run})
            is_over.wait(SECONDS_BETWEEN_EXAMINATIONS)

    page = threading.Thread(target=examine)
    page.start()
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for interval in range(2 * INTERVALS):
        with_doctor = interval % 2 == 0
        (is_examining.set if with_doctor else is_examining.clear)()
        step, started = runs[run].info.step, time.perf_counter()
        time.sleep(SECONDS)
        speeds[with_doctor].append((runs[run].info.step - step) / (time.perf_counter() - started))
    is_over.set()
    is_examining.set()
    page.join()
    runs.stop(run)
    wait_for(lambda: runs[run].info.status == "stopped", seconds=60)
    fraction = median(speeds[True]) / median(speeds[False])
    print(f"\n{name}: {median(speeds[False]):.1f} updates/s, with the doctor {fraction:.2f} of that")
    assert fraction > 0.8
