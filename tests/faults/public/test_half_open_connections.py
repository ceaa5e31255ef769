"""Connections that send no request, or only a part of one, do not keep others out, nor fill the log."""

import http.client
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator

import gradio as gr
import httpx
import pytest

from core.server import Runs
from core.server.limits import PUBLIC
from tests.support.run_helpers import wait_for
from ui.serving import connections
from ui.serving.launch import serve
from ui.serving.logs import OncePerMinute
from ui.serving.visitors import Presence

MOST = 20


@pytest.fixture
def page(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[gr.Blocks]:
    """A public server that holds 20 connections."""
    monkeypatch.setattr("ui.serving.launch.max_connections", lambda: MOST)
    runs = Runs(tmp_path / "checkpoints", limits=PUBLIC)
    page, _ = serve(runs, Presence())
    yield page
    runs.close()
    page.close(verbose=False)


@pytest.fixture
def address(page: gr.Blocks) -> tuple[str, int]:
    return "127.0.0.1", page.server_port


def opened(address: tuple[str, int], content: bytes) -> socket.socket:
    connection = socket.create_connection(address)
    connection.sendall(content)
    connection.settimeout(0.001)
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1000) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_half_open_connections_do_not_keep_requests_out(address, monkeypatch: pytest.MonkeyPatch):
    held = [opened(address, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ") for _ in range(5 * MOST)]
    statuses = [httpx.get(f"http://127.0.0.1:{address[1]}/health", timeout=60).status_code for _ in range(30)]
    assert statuses == [200] * 30
    wait_for(lambda: sum(map(is_closed, held)) >= 4 * MOST)
    for each in held:
        each.close()


def test_half_open_connections_do_not_close_one_that_had_an_answer_and_waits_for_its_next_request(address):
    used = http.client.HTTPConnection(*address, timeout=60)
    used.request("GET", "/health")
    assert used.getresponse().read()
    waiting = used.sock
    held = [opened(address, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ") for _ in range(3 * MOST)]
    wait_for(lambda: sum(map(is_closed, held)) >= 2 * MOST)
    used.request("GET", "/health")
    assert used.getresponse().status == 200
    assert used.sock is waiting
    for each in (*held, used):
        each.close()


def num_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files, which needs Linux")
def test_a_burst_of_connections_leaves_files_for_runs_and_time_for_requests(page: gr.Blocks, address):
    burst, is_held = 300, threading.Event()
    page.server.servers[0].get_loop().call_soon_threadsafe(is_held.wait, 60)  # all of them come while it is busy
    held = [opened(address, b"GET / HTTP/1.1\r\nX: ") for _ in range(burst)]
    asking = opened(address, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    held += [opened(address, b"GET / HTTP/1.1\r\nX: ") for _ in range(burst)]
    before, most = num_files(), 0
    is_held.set()
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        most = max(most, num_files() - before)
    asking.settimeout(60)
    assert asking.recv(100).startswith(b"HTTP/1.1 200")
    assert most < MOST + 8 * connections.ACCEPTED_AT_ONCE  # aborted ones are closed a few rounds of the loop later
    wait_for(lambda: sum(map(is_closed, held)) >= 2 * burst - MOST, seconds=60)
    for each in (*held, asking):
        each.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        b"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n",
    ],
    ids=["nothing", "a part of the headers", "a part of a body"],
)
def test_a_connection_without_a_whole_request_is_closed(address, content: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.3)
    connection = opened(address, content)
    wait_for(lambda: is_closed(connection))
    connection.close()


def test_a_message_of_the_event_loop_is_logged_once_a_minute():
    once = OncePerMinute()
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "socket.accept() out of system resource", (), None)
    assert [once.filter(record) for _ in range(3)] == [True, False, False]
    other = logging.LogRecord("asyncio", logging.ERROR, "", 0, "another", (), None)
    assert once.filter(other)
    record.created += 61
    assert once.filter(record)
