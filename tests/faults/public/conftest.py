"""Fixtures: a public server with strict limits, and its visitors."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gradio as gr
import pytest
from playwright.sync_api import expect

os.environ.setdefault("HF_HUB_OFFLINE", "1")


from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.limits import PUBLIC
from tests.faults.public.session import Session
from tests.serving import SHIPPED
from ui.serving.launch import serve
from ui.serving.visitors import Presence

expect.set_options(timeout=60_000)  # milliseconds: these tests also run beside others

# An idle process that only echoes: its response time is the machine's share of the server's.
IDLE = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    with listener.accept()[0] as connection:
        connection.sendall(connection.recv(100))
"""
QUIET_PING = 0.005  # seconds; how long 95 % of the pings of an idle process take at most on a quiet machine


def slowdown(idle_ping: float) -> float:
    """How many times slower the machine is now than a quiet one, by a ping of the idle process in seconds."""
    return max(1.0, idle_ping / QUIET_PING)


@dataclass(frozen=True)
class Public:
    """The server: its runs, its address, the folder of uploads, and the page."""

    runs: Runs
    address: str
    uploads: Path
    page: gr.Blocks


def delete_folder(path: Path) -> None:
    """Delete the folder of a run in training, which may write files at any moment: move it away first."""
    moved = path.rename(path.parent.with_name(f"deleted-{path.name}"))
    shutil.rmtree(moved)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Public]:
    """The page served in public mode."""
    root, uploads = tmp_path_factory.mktemp("checkpoints"), tmp_path_factory.mktemp("uploads")
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(uploads))
        runs = Runs(root, limits=PUBLIC.model_copy(update={"max_upload_mb": 2, "max_uploads_mb_per_visitor": 4}))
        page, address = serve(runs, Presence())
        yield Public(runs, address, uploads, page)
        runs.close()
        page.close(verbose=False)


@pytest.fixture(scope="module")
def visit(public: Public) -> Iterator[Callable[[], Session]]:
    """Return a function that opens the session of a new visitor."""
    sessions: list[Session] = []

    def open_session() -> Session:
        sessions.append(Session(public.address))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


@pytest.fixture(scope="module")
def brief() -> dict[str, int]:
    """Changes with which the tiny preset trains in a second."""
    return {"training.steps": 60, "training.evaluate_every": 30, "training.validation_sequences": 16}


@pytest.fixture(scope="module")
def ping_idle() -> Iterator[Callable[[], float]]:
    """Ping the idle process; return its response time in seconds."""
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())

        def ping() -> float:
            start = time.perf_counter()
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"?")
                connection.recv(100)
            return time.perf_counter() - start

        yield ping
        process.kill()
