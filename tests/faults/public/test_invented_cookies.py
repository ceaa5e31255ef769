"""A program that invents a cookie for every request leaves room for others."""

import json
import secrets
from collections.abc import Iterator

import pytest

from core.server.limits import PUBLIC
from tests.faults.public.conftest import Public
from tests.faults.public.session import Session
from tests.support.run_helpers import wait_for

LONG = {"training.steps": 20_000, "training.evaluate_every": 1_000}


@pytest.fixture
def empty_again(public: Public) -> Iterator[None]:
    yield
    for live in public.runs.active():
        live.stop.set()
    wait_for(lambda: not public.runs.active(), seconds=60)


def answer_to(public: Public, address: str) -> str:
    """Start a run as a new visitor behind a proxy, which names the visitor's address; return the answer."""
    session = Session(public.address)
    session.http.cookies.set("attention-lab-visitor", secrets.token_urlsafe(32), domain="127.0.0.1")
    session.http.headers["x-forwarded-for"] = f"198.51.100.1, {address}"
    answer = json.dumps(session.call("train", "tiny", LONG, ""))
    session.close()
    return answer


def test_invented_cookies_get_half_of_the_queue(public: Public, empty_again: None):
    answers = [answer_to(public, "203.0.113.7") for _ in range(24)]
    refused = [each for each in answers if "runs from your network are training or queued, and the limit is 10" in each]
    assert PUBLIC.max_queued == 20
    assert len(refused) == 14
    assert '"event": "complete"' in answer_to(public, "203.0.113.8")
    assert len(public.runs.active()) == 11
