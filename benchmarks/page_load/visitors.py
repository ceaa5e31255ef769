"""Visitors of a served page, in a process of their own: ``python -m benchmarks.page_load.visitors ADDRESS --runs A,B``.

Each is a real ``gradio_client.Client`` with a session and a cookie of its own. *People* come one after the other within
ten seconds, and each opens the page (its HTML, its configuration, the client's description of the endpoints), then goes
on until the time is up: type an input and have it decoded by a run, the shipped one or one in training (one time in
five by beam search); look at the attention of that input; see where a run in training stands; and think, for 1 to 5
seconds before each of the three, 3 on average. Meanwhile their page asks for the list of runs each second, as the
scripts of an open page do. A *burst* is what nobody does: all decode at the same moment, one decode after the other,
without a thought.

What the browser itself fetches once and keeps, scripts and styles, is not asked for. Every line that is printed is a
JSON object: one when it begins, one with every request at the end.
"""

import argparse
import json
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_OFFLINE"] = "1"

from gradio_client import Client

from benchmarks.page_load.served import COOKIE, SHIPPED, Page

SECONDS_TO_COME = 10.0
THOUGHT = (1.0, 5.0)
SECONDS_BETWEEN_LISTS = 1.0
BUSY = ("queue is full", "too many", "busy")  # refusals that say to try again


class Requests:
    """What was asked, how long the answer took, and what went wrong; of all visitors."""

    def __init__(self) -> None:
        self.all: list[tuple[str, float, str]] = []

    def time(self, what: str, ask: Callable[[], Any]) -> Any:
        """Ask, and note it; None where it failed."""
        began, problem, answer = time.perf_counter(), "", None
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and told
            problem = f"{type(error).__name__}: {error}"[:300]
        self.all.append((what, time.perf_counter() - began, problem))
        return answer


class Person:
    """One visitor.

    Args:
        runs: names of runs in training that they may look at.
    """

    def __init__(self, address: str, runs: list[str], requests: Requests, number: int) -> None:
        self.address, self.runs, self.requests = address, runs, requests
        self.page = Page(address)
        self.choice = random.Random(number)  # noqa: S311 - what a visitor types
        self.client: Client | None = None

    def come(self) -> None:
        """Open the page."""
        self.requests.time("open the page", self._open)

    def _open(self) -> None:
        self.page.open()
        self.client = Client(
            self.address,
            verbose=False,
            analytics_enabled=False,
            download_files=False,
            ssl_verify=False,  # there is none here, but each request would read all certificates of the system
            httpx_kwargs={"cookies": {COOKIE: self.page.cookie}, "timeout": 60},
        )

    def stay(self, until: float) -> None:
        """Ask one thing after the other, with thoughts between them."""
        come_at = time.monotonic() + self.choice.uniform(0, SECONDS_TO_COME)
        time.sleep(max(0.0, min(come_at, until) - time.monotonic()))
        self.come()
        if self.client is None:
            return
        watching = threading.Thread(target=self._keep_page, args=(until,), daemon=True)
        watching.start()
        run = text = ""
        for ask in self._endlessly(self.decode, self.look, self.watch):
            if time.monotonic() > until:
                break
            if ask == self.decode:
                run, text = self.choice.choice([SHIPPED, *self.runs]), self._text()
            ask(run, text)
            time.sleep(max(0.0, min(self.choice.uniform(*THOUGHT), until - time.monotonic() + 0.001)))
        watching.join()

    @staticmethod
    def _endlessly(*what: Callable) -> Any:
        while True:
            yield from what

    def _text(self) -> str:
        return " ".join(self.choice.choices("0123456789", k=self.choice.randint(3, 10)))

    def decode(self, run: str, text: str) -> None:
        """Have an input decoded."""
        strategy = {"kind": "beam", "beam_size": 4} if self.choice.random() < 0.2 else {}
        self._call("decode", run=run, input=text, strategy=strategy)

    def look(self, run: str, text: str) -> None:
        """Look at the attention of an input."""
        self._call("attention", run=run, input=text, block="cross", layer=self.choice.choice([1, 2]))

    def watch(self, *_: str) -> None:
        """See where a run in training stands: its last figures, or all of them."""
        self._call("progress", run=self.choice.choice(self.runs), since_step=-1)

    def _call(self, endpoint: str, **arguments: Any) -> None:
        self.requests.time(endpoint, lambda: self.client.predict(**arguments, api_name=f"/{endpoint}"))

    def _keep_page(self, until: float) -> None:
        while time.monotonic() < until:
            self.requests.time("list of runs", lambda: self.page.ask("run-bar.list_runs", {}))
            time.sleep(SECONDS_BETWEEN_LISTS)


def people(visitors: list[Person], seconds: float) -> None:
    """Let all come, stay and ask."""
    until = time.monotonic() + seconds
    _at_once(visitors, lambda visitor: visitor.stay(until))


def burst(visitors: list[Person], decodes: int) -> None:
    """Let all decode at the same moment."""

    def insist(visitor: Person) -> None:
        for _ in range(decodes):
            visitor.requests.time(
                "decode", lambda: visitor.client.predict(run=SHIPPED, input=visitor._text(), api_name="/decode")
            )

    _at_once(visitors, insist)


def _at_once(visitors: list[Person], what: Callable[[Person], None]) -> None:
    with ThreadPoolExecutor(len(visitors)) as threads:
        for each in [threads.submit(what, visitor) for visitor in visitors]:
            each.result()


def main() -> None:
    """Visit, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--runs", required=True, help="names of runs in training, with commas between them")
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="that people stay")
    parser.add_argument("--burst", type=int, default=0, metavar="N", help="a burst of N decodes each instead")
    options = parser.parse_args()
    requests = Requests()
    visitors = [
        Person(options.address, options.runs.split(","), requests, number) for number in range(options.visitors)
    ]
    if options.burst:
        _at_once(visitors, Person.come)
    print(json.dumps({"began": True}), flush=True)
    began = time.perf_counter()
    if options.burst:
        requests.all.clear()
        burst(visitors, options.burst)
    else:
        people(visitors, options.seconds)
    print(json.dumps({"seconds": time.perf_counter() - began, "requests": requests.all}), flush=True)
    os._exit(0)  # the clients' threads would keep the process


if __name__ == "__main__":
    main()
