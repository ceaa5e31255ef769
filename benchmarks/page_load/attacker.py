"""A student who tries to stop a class: comes with a new cookie, queues long runs, decodes widely, leaves, and again."""

import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import httpx

from benchmarks.page_load.app_process import SHIPPED_RUN, PageClient

# Calls of the API of each visit
RUNS = 2 * (("train", ("tiny", {"training.steps": 5_000}, "")),)
DECODES = 2 * (("decode", (SHIPPED_RUN, "4829" * 15, {"kind": "beam", "beam_size": 32}, "", "", "", "zero")),)
WRONG_CODES = 3
NICKNAME = "Attacker"


class Attacker:
    """Visits the class again and again from the students' address.

    Attributes:
        accepted, refused: requests by what the server did with them.
    """

    def __init__(self, address: str, code: str, network: str) -> None:
        self._address, self._code, self._network = address, code, network
        self.accepted = self.refused = 0

    def stay(self, is_over: threading.Event) -> None:
        """Attack until the event."""
        for visit in count():
            if is_over.is_set():
                return
            page = PageClient(self._address)
            page.http.headers["x-forwarded-for"] = self._network
            try:
                page.open()
                self._try(page, "class_join", code=self._code, nickname=f"{NICKNAME} {visit}")
                for endpoint, values in (*RUNS, *DECODES):
                    self._count(partial(page.call_endpoint, endpoint, *values))
                self._try(page, "class_leave")
                for wrong in range(WRONG_CODES):
                    self._try(page, "class_join", code=f"AAAA AAA{wrong}", nickname="X")
            except httpx.HTTPError:
                self.refused += 1
            is_over.wait(0.5)

    def _try(self, page: PageClient, function: str, **argument: str) -> None:
        self._count(partial(page.call_component, f"run-bar.{function}", argument))

    def _count(self, request: Callable[[], Any]) -> None:
        try:
            answer = request()
            is_refused = isinstance(answer, dict) and "error" in answer
        except (httpx.HTTPError, RuntimeError, ValueError, StopIteration):
            is_refused = True
        self.accepted += not is_refused
        self.refused += is_refused
