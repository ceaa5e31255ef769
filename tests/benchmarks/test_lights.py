"""How much the doctor's lights slow a training that they are shown of.

pytest -m slow -s -k lights
"""

import threading
import time
from statistics import median

import pytest

from core.config import load_preset
from core.server import Runs
from core.server.access import VisitorRuns
from tests.support.run_helpers import wait_for
from ui.components.doctor import Doctor

SECONDS = 8.0  # of a stretch with lights, or without
STRETCHES = 5  # of each, in turn
POLLED = 4.0  # seconds between two questions of a page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits-reversal", "psalms"])
def test_lights_do_not_slow_a_training(name, root):
    runs = VisitorRuns(Runs(root))
    run = runs.start(load_preset(name).with_changes({"training.steps": 100_000}))
    wait_for(lambda: runs.info(run).step > 5, seconds=60)
    doctor, lit, over = Doctor(runs), threading.Event(), threading.Event()

    def shown() -> None:
        while lit.wait() and not over.is_set():
            doctor.examine({"run": run})
            over.wait(POLLED)

    page = threading.Thread(target=shown)
    page.start()
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for stretch in range(2 * STRETCHES):
        is_lit = stretch % 2 == 0
        (lit.set if is_lit else lit.clear)()
        step, began = runs.info(run).step, time.perf_counter()
        time.sleep(SECONDS)
        speeds[is_lit].append((runs.info(run).step - step) / (time.perf_counter() - began))
    over.set()
    lit.set()
    page.join()
    runs.stop(run)
    wait_for(lambda: runs.info(run).status == "stopped", seconds=60)
    share = median(speeds[True]) / median(speeds[False])
    print(f"\n{name}: {median(speeds[False]):.1f} updates/s, with lights {share:.2f} of that")
    assert share > 0.8
