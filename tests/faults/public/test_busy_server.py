"""A busy server, in its own process, keeps responding to other visitors."""

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from benchmarks.page_load.app_process import SHIPPED_RUN, AppProcess, PageClient, serve_app
from benchmarks.page_load.response_times import HealthPings, ResponseTimes
from core.config import load_preset, preset_to_yaml
from core.runs.training_state import clone_weights
from core.teaching.bugs import new_state
from tests.faults.hostile import misnamed_files, pt_files, safetensors_files
from tests.faults.public.conftest import slowdown
from tests.faults.public.session import Session
from tests.faults.public.test_uploads import opened
from tests.support.run_helpers import wait_for

SECONDS = 10.0
# The largest draws of data: 16 batches grouped by length, and sentences generated in advance.
HEAVY = {
    "addition": {"training.batch_size": 512, "training.group_by_length": True},
    "words-reversal-transformer": {"training.evaluate_every": 200},
}
LONGEST = "9" * 48


@pytest.fixture(scope="module")
def app() -> Iterator[AppProcess]:
    with serve_app() as app:
        yield app


def ping_during(
    app: AppProcess, ping_idle: Callable[[], float], *works: Callable[[], object]
) -> tuple[ResponseTimes, ResponseTimes]:
    """Ping while each function runs repeatedly in its own thread; an exception fails the test.

    Returns the response times of the server and of the idle process.
    """
    errors: list[Exception] = []
    over = threading.Event()

    def do(work: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                work()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=do, args=(work,)) for work in works]
    pings, idle = HealthPings(app.ping), HealthPings(ping_idle)
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    over.set()
    for thread in threads:
        thread.join()
    times = pings.stop(), idle.stop()
    assert errors == []
    return times


def test_heavy_data_beam_search_and_export_do_not_block_others(app: AppProcess, ping_idle):
    pages = [PageClient(app.address) for _ in range(4)]
    for page in pages:
        page.open()
    runs = [page.call_endpoint("train", *each, "") for page, each in zip(pages, HEAVY.items(), strict=False)]
    started = list(zip(pages, runs, strict=False))
    wait_for(lambda: all(page.call_component("run-bar.feed", run)["status"] != "queued" for page, run in started))
    side = 128
    labels, chance = [str(number) for number in range(side)], random.Random(0)
    weights = [[chance.random() for _ in labels] for _ in labels]
    picture = {"title": "all", "rows": labels, "columns": labels, "weights": weights, "marked": []}
    beam = {"kind": "beam", "beam_size": 32, "n_best": 32}

    def search() -> None:
        assert pages[2].call_endpoint("decode", SHIPPED_RUN, "4 8 2 9 1 0 3 5 7 6", beam, "", "", "", "zero")["output"]

    def export() -> None:
        assert "png" in pages[3].call_component("viewer.picture", picture)

    def look() -> None:
        pages[1].call_endpoint("attention", SHIPPED_RUN, "4 8 2 9 1 0 3 5 7 6", "encoder", 2, "", "", "zero")

    times, idle = ping_during(app, ping_idle, search, export, look)
    for page, run in started:
        assert page.call_component("run-bar.feed", run)["status"] in ("training", "finished")
        page.call_endpoint("stop", run["run"])
    assert times.p95 <= 0.1 * slowdown(idle.p95)
    assert times.max <= 0.5 * slowdown(idle.max)


def test_hostile_uploads_do_not_block_others(app: AppProcess, ping_idle, tmp_path):
    tiny = load_preset("tiny")
    facts = {"step": 4, "validation_loss": 0.5, "exact_match": 0.25, "preset": preset_to_yaml(tiny)}
    files = [*pt_files(tmp_path / "marker"), *misnamed_files()]
    files += safetensors_files(clone_weights(new_state(tiny).model), facts)
    visitor, left = Session(app.address), iter(files * 100)

    def upload() -> None:
        response = visitor.upload(next(left)[1])
        if response.status_code == 200:
            assert '"problem": true' in opened(visitor, response.json()[0])

    times, idle = ping_during(app, ping_idle, upload)
    assert not (tmp_path / "marker").exists()
    assert times.p95 <= 0.25 * slowdown(idle.p95)


def test_one_off_sessions_of_programs_leak_little_memory(app: AppProcess):
    page, count = PageClient(app.address), 200
    for _ in range(count):  # the interpreter and Gradio grow with their first calls
        page.call_endpoint("list_runs")
    before = app.megabytes()
    for _ in range(count):
        page.call_endpoint("list_runs")  # each call is a session of its own
    grown = app.megabytes() - before
    assert grown <= 20
