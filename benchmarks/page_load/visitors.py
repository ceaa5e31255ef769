"""Visitors of the page, in a separate process: ``python -m benchmarks.page_load.visitors ADDRESS --runs A,B``.

Each visitor is a ``gradio_client.Client`` with its own session and cookie. *People* arrive within ten seconds, open the
page and repeat until the time is up: decode an input with the shipped run or one in training (one time in five by beam
search), view its attention, and request the progress of a run in training, waiting 1 to 5 seconds before each.
Meanwhile their page requests the list of runs every second, as its scripts do. A *burst* is a worst case: all visitors
decode at the same moment, repeatedly and without waiting.

Scripts and styles, which a browser caches, are not requested. Every line printed is a JSON object: one when the visits
begin, one with all requests at the end.
"""

import argparse
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import Any, TypeVar

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_OFFLINE"] = "1"

from gradio_client import Client

from benchmarks.page_load.app_process import COOKIE, SHIPPED_RUN, PageClient

MAX_SECONDS_TO_ARRIVE = 10.0
SECONDS_BETWEEN_REQUESTS = (1.0, 5.0)  # uniformly distributed
SECONDS_BETWEEN_LISTS = 1.0
BEAM_SEARCH_RATE = 0.2
BUSY = ("queue is full", "calls are waiting or running", "too many", "busy")  # refusals that ask to try again
T = TypeVar("T")


class RequestLog:
    """Name, seconds and error message ("" if none) of every request of all visitors."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, float, str]] = []

    def time(self, name: str, send: Callable[[], T]) -> T | None:
        """Send a request and log it; return None if it failed."""
        started, message, response = time.perf_counter(), "", None
        try:
            response = send()
        except Exception as error:  # noqa: BLE001 - every error is counted and reported
            message = f"{type(error).__name__}: {error}"[:300]
        self.entries.append((name, time.perf_counter() - started, message))
        return response


class Visitor:
    """One visitor.

    Args:
        runs: names of runs in training, shared with all visitors.
        log: where requests are logged.
        seed: of the visitor's random choices.
    """

    def __init__(self, address: str, runs: list[str], log: RequestLog, seed: int) -> None:
        self.address, self.runs, self.log = address, runs, log
        self.page = PageClient(address)
        self.random = random.Random(seed)  # noqa: S311 - no secrets
        self.client: Client | None = None

    def open_page(self) -> None:
        """Open the page and connect the client."""
        self.client = self.log.time("open the page", self._connect)

    def _connect(self) -> Client:
        self.page.open()
        return Client(
            self.address,
            verbose=False,
            analytics_enabled=False,
            download_files=False,
            ssl_verify=False,  # the address is plain HTTP; otherwise every request would load the system's certificates
            httpx_kwargs={"cookies": {COOKIE: self.page.cookie}, "timeout": 60},
        )

    def stay(self, until: float) -> None:
        """Use the page until ``time.monotonic()`` reaches ``until``."""
        arrival = time.monotonic() + self.random.uniform(0, MAX_SECONDS_TO_ARRIVE)
        time.sleep(max(0.0, min(arrival, until) - time.monotonic()))
        self.open_page()
        if self.client is None:
            return
        polling = threading.Thread(target=self._poll_runs, args=(until,), daemon=True)
        polling.start()
        for request in self._requests():
            if time.monotonic() > until:
                break
            request()
            pause = self.random.uniform(*SECONDS_BETWEEN_REQUESTS)
            time.sleep(max(0.0, min(pause, until - time.monotonic() + 0.001)))
        polling.join()

    def _requests(self) -> Iterator[Callable[[], object]]:
        """Yield the visitor's requests without end: decode an input, view its attention, request progress."""
        run = text = ""
        for kind in cycle(("decode", "attention", "progress")):
            if kind == "decode":
                run, text = self.random.choice([SHIPPED_RUN, *self.runs]), self.random_text()
                yield partial(self.decode, run, text)
            elif kind == "attention":
                yield partial(self.view_attention, run, text)
            else:
                yield self.request_progress

    def random_text(self) -> str:
        """Return 3 to 10 random digits."""
        return " ".join(self.random.choices("0123456789", k=self.random.randint(3, 10)))

    def decode(self, run: str, text: str) -> None:
        """Decode an input."""
        strategy = {"kind": "beam", "beam_size": 4} if self.random.random() < BEAM_SEARCH_RATE else {}
        self.call("decode", run=run, input=text, strategy=strategy)

    def view_attention(self, run: str, text: str) -> None:
        """Request the cross-attention of an input."""
        self.call("attention", run=run, input=text, block="cross", layer=self.random.choice([1, 2]))

    def request_progress(self) -> None:
        """Request the metrics of a run in training."""
        self.call("progress", run=self.random.choice(self.runs), since_step=-1)

    def call(self, endpoint: str, **arguments: Any) -> None:
        """Call an API endpoint and log the request."""
        client = self.client
        if client is None:
            raise RuntimeError("open the page first")
        self.log.time(endpoint, lambda: client.predict(**arguments, api_name=f"/{endpoint}"))

    def _poll_runs(self, until: float) -> None:
        while time.monotonic() < until:
            self.log.time("list of runs", lambda: self.page.call_component("run-bar.list_runs", {}))
            time.sleep(SECONDS_BETWEEN_LISTS)


def visit_as_people(visitors: list[Visitor], seconds: float) -> None:
    """Let all visitors use the page for some seconds."""
    until = time.monotonic() + seconds
    _run_in_threads(visitors, lambda visitor: visitor.stay(until))


def visit_as_burst(visitors: list[Visitor], decodes: int) -> None:
    """Let all visitors decode at the same moment, ``decodes`` times each."""

    def decode_repeatedly(visitor: Visitor) -> None:
        for _ in range(decodes):
            visitor.call("decode", run=SHIPPED_RUN, input=visitor.random_text())

    _run_in_threads(visitors, decode_repeatedly)


def _run_in_threads(visitors: list[Visitor], function: Callable[[Visitor], None]) -> None:
    with ThreadPoolExecutor(len(visitors)) as threads:
        for future in [threads.submit(function, visitor) for visitor in visitors]:
            future.result()


def main() -> None:
    """Visit the page and print all requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--runs", required=True, help="names of runs in training, separated by commas")
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of people's visits")
    parser.add_argument("--burst", type=int, default=0, metavar="N", help="a burst of N decodes per visitor instead")
    options = parser.parse_args()
    log = RequestLog()
    visitors = [Visitor(options.address, options.runs.split(","), log, seed) for seed in range(options.visitors)]
    if options.burst:
        _run_in_threads(visitors, Visitor.open_page)
    print(json.dumps({"began": True}), flush=True)
    started = time.perf_counter()
    if options.burst:
        log.entries.clear()
        visit_as_burst(visitors, options.burst)
    else:
        visit_as_people(visitors, options.seconds)
    print(json.dumps({"seconds": time.perf_counter() - started, "requests": log.entries}), flush=True)
    os._exit(0)  # the clients' threads would keep the process alive


if __name__ == "__main__":
    main()
