"""Serving the page; what the server remembers of its visitors: a session for a page, nothing for other calls."""

from collections.abc import Iterator
from pathlib import Path

import gradio as gr
import httpx
import pytest
from gradio import networking

from core.server import Runs
from tests.support.run_helpers import wait_for
from ui.serving import call_limits
from ui.serving.launch import serve


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[gr.Blocks, httpx.Client]]:
    """A page of its own, as the tests count its sessions, and a client of it."""
    runs = Runs(tmp_path_factory.mktemp("checkpoints"))
    blocks, address = serve(runs)
    with httpx.Client(base_url=f"{address}gradio_api", timeout=30) as client:
        yield blocks, client
    blocks.close()
    runs.close()


def test_a_page_that_takes_long_to_make_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(networking, "url_ok", lambda url: False)  # what Gradio makes of more than three seconds
    runs = Runs(tmp_path)
    blocks, address = serve(runs)
    assert httpx.get(address).status_code == 200
    blocks.close()
    runs.close()


def call(client: httpx.Client) -> str:
    """List the runs as ``curl`` would, and return the answer."""
    event = client.post("/call/list_runs", json={"data": []}).raise_for_status().json()["event_id"]
    return client.get(f"/call/list_runs/{event}").text


def test_a_call_leaves_no_session(page):
    blocks, client = page
    before = list(blocks.state_holder.session_data)
    for _ in range(5):
        assert "event: complete" in call(client)
    sessions = blocks.state_holder  # which drops a session just after the answer
    wait_for(lambda: list(sessions.session_data) == before and set(sessions.time_last_used) <= set(before), seconds=5)


def test_a_page_keeps_its_session(page):
    blocks, client = page
    event = next(each._id for each in blocks.fns.values() if each.api_name == "list_runs")
    for _ in range(2):
        body = {"data": [], "fn_index": event, "session_hash": "a page"}
        client.post("/queue/join", json=body).raise_for_status()
        assert "process_completed" in client.get("/queue/data", params={"session_hash": "a page"}).text
        assert "a page" in blocks.state_holder.session_data


def test_what_gradio_keeps_of_answered_calls_is_dropped(page, monkeypatch: pytest.MonkeyPatch):
    blocks, client = page
    queue = blocks._queue
    monkeypatch.setattr(call_limits, "KEPT_SESSIONS", 3)
    for _ in range(8):
        assert "event: complete" in call(client)
    waiting = client.post("/call/list_runs", json={"data": []}).raise_for_status().json()["event_id"]
    assert len(queue.pending_event_ids_session) <= 4
    assert len(queue.pending_messages_per_session) <= 4
    assert "event: complete" in client.get(f"/call/list_runs/{waiting}").text  # which was not fetched yet


def test_answers_that_nobody_fetches_are_forgotten(page, monkeypatch: pytest.MonkeyPatch):
    blocks, client = page
    queue = blocks._queue
    monkeypatch.setattr(call_limits, "KEPT_SESSIONS", 3)
    for _ in range(5):
        client.post("/call/list_runs", json={"data": []}).raise_for_status()
    assert len(queue.pending_event_ids_session) >= 5  # they may still be fetched
    queue.pending_messages_per_session.clear()  # as it drops the oldest of 2,000
    assert "event: complete" in call(client)
    assert len(queue.pending_event_ids_session) == 1
