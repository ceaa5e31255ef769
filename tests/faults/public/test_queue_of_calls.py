"""A visitor who sends more calls than are answered is refused; the others are not."""

import hashlib
import json
import secrets
import statistics
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

import ui.api
from core.server import Runs
from tests.faults.public.conftest import Public
from tests.faults.public.session import Session
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for
from ui.serving import long_calls, visitors
from ui.serving.call_limits import EVENTS_PER_NETWORK, EVENTS_PER_VISITOR, THREADS_PER_VISITOR
from ui.serving.visitors import COOKIE

DECODE = (SHIPPED, "4829", {}, "", "", "", "zero")
JSON = {"content-type": "application/json"}


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let no report end before the event is set."""
    end = threading.Event()

    def report(*_, **__):
        end.wait(120)
        raise MemoryError

    monkeypatch.setattr("ui.api.write_report", report)
    yield end
    end.set()


def post_report(session: Session, **headers: str) -> int:
    """Ask for a report without waiting for it; return the status of the answer."""
    body = json.dumps({"data": [SHIPPED]})
    answer = session.http.post("/gradio_api/call/report", content=body, headers=JSON | headers)
    assert answer.status_code == 200 or "calls are waiting or running" in answer.json()["detail"]
    return answer.status_code


def waiting(public: Public) -> int:
    return len(public.page._queue.event_ids_to_events)


def test_a_visitor_who_fills_the_queue_is_refused_and_others_are_answered(public: Public, visit, reports):
    attacker, other = visit(), visit()
    statuses = [post_report(attacker) for _ in range(64)]
    assert statuses.count(200) == EVENTS_PER_VISITOR
    assert statuses.count(429) == 64 - EVENTS_PER_VISITOR
    answers = [other.call("decode", *DECODE) for _ in range(48)]
    assert [answer["data"][0]["output"] for answer in answers] == [list("9284")] * 48
    reports.set()
    wait_for(lambda: not waiting(public))
    assert post_report(attacker) == 200
    wait_for(lambda: not waiting(public))


def test_invented_cookies_of_one_network_get_half_of_the_queue_and_one_turn(public: Public, visit, reports):
    session = visit()

    def invented(address: str) -> int:
        session.http.cookies.set(COOKIE, secrets.token_urlsafe(32), domain="127.0.0.1")
        return post_report(session, **{"x-forwarded-for": address})

    statuses = [invented("203.0.113.7") for _ in range(EVENTS_PER_NETWORK + 20)]
    assert statuses.count(200) == EVENTS_PER_NETWORK
    assert invented("203.0.113.8") == 200
    lane = public.page._queue.event_queue_per_concurrency_id["cpu"].queue
    wait_for(lambda: "203.0.113.8" not in [event.request.client.host for event in lane])  # it has started
    assert len(lane) >= EVENTS_PER_NETWORK - 2
    reports.set()
    wait_for(lambda: not waiting(public), seconds=60)


def test_a_network_that_asks_for_report_after_report_rests_while_others_use_the_page(
    public: Public, visit, monkeypatch
):
    attacker, other = visit(), visit()
    other.http.headers["x-forwarded-for"] = "203.0.113.8"
    times: list[tuple[float, float]] = []

    def report(*_, **__):
        started = time.monotonic()
        time.sleep(0.2)
        times.append((started, time.monotonic()))
        raise MemoryError

    monkeypatch.setattr("ui.api.write_report", report)

    def pauses() -> list[float]:
        """Ask for three reports; return the seconds between the end of one and the start of the next."""
        times.clear()
        assert [post_report(attacker, **{"x-forwarded-for": "203.0.113.7"}) for _ in range(3)] == [200] * 3
        wait_for(lambda: len(times) == 3 and not waiting(public))
        return [later - end for (_, end), (later, _) in pairwise(times)]

    assert other.call("decode", *DECODE)["event"] == "complete"
    assert min(pauses()) > 0.9 * long_calls.REST * 0.2
    monkeypatch.setattr(visitors, "SECONDS_OF_USE", 0.0)
    assert min(pauses()) < 0  # two at a time, nobody else being there


def test_long_decodes_of_a_network_let_the_decodes_of_others_pass(public: Public, visit, monkeypatch):
    """The attack: sixteen decodes that compute for long, each by a visitor of its own."""
    attacker, other = visit(), visit()
    other.http.headers["x-forwarded-for"] = "203.0.113.9"
    times: list[tuple[float, float]] = []
    genuine, data = ui.api._decoded, bytes(1_000_000)

    def decoded(run, text, *arguments, **options):
        if text == "1111":
            started, before = time.monotonic(), time.thread_time()
            while time.thread_time() < before + 2 * long_calls.LONG_SECONDS:
                hashlib.sha256(data)  # releases the interpreter, as PyTorch does
            times.append((started, time.monotonic()))
        return genuine(run, text, *arguments, **options)

    monkeypatch.setattr("ui.api._decoded", decoded)
    assert other.call("decode", *DECODE)["event"] == "complete"
    body = json.dumps({"data": [SHIPPED, "1111", *DECODE[2:]]})
    for _ in range(16):
        attacker.http.cookies.set(COOKIE, secrets.token_urlsafe(32), domain="127.0.0.1")
        answer = attacker.http.post(
            "/gradio_api/call/decode", content=body, headers=JSON | {"x-forwarded-for": "203.0.113.7"}
        )
        assert answer.status_code == 200
    waits = []
    while len(times) < 4:
        started = time.monotonic()
        assert other.call("decode", *DECODE)["data"][0]["output"] == list("9284")
        waits.append(time.monotonic() - started)
    burst, alone = sorted(times)[:3], sorted(times)[3]
    assert alone[0] > max(end for _, end in burst) + long_calls.REST * 2 * long_calls.LONG_SECONDS
    assert statistics.median(waits) < 2 * long_calls.LONG_SECONDS
    monkeypatch.setattr(visitors, "SECONDS_OF_USE", 0.0)
    wait_for(lambda: not waiting(public), seconds=60)


def test_a_visitor_occupies_only_some_of_the_threads(public: Public, visit, monkeypatch):
    attacker, other = visit(), visit()
    bar = next(component for component, name in attacker.server_functions() if name == "actions")
    end, answers = threading.Event(), []
    genuine = Runs.__getitem__

    def held(runs: Runs, name: str):
        if name == "held":
            end.wait(120)
        return genuine(runs, name)

    monkeypatch.setattr(Runs, "__getitem__", held)

    def call() -> None:
        answers.append(attacker.call_component(bar, "actions", {"run": "held"}).status_code)

    threads = [threading.Thread(target=call) for _ in range(THREADS_PER_VISITOR + 8)]
    for thread in threads:
        thread.start()
    wait_for(lambda: answers.count(429) == 8)
    assert other.call("decode", *DECODE)["event"] == "complete"
    end.set()
    for thread in threads:
        thread.join()
    assert answers.count(200) == THREADS_PER_VISITOR
