"""The server process: it starts offline, reports its health, and saves runs when it is terminated."""

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from core.runs import DEFAULT_ROOT, RunFolder
from tests.faults.public.conftest import slowdown
from tests.faults.public.session import Session
from tests.serving import SHIPPED

REPOSITORY = Path(__file__).resolve().parents[3]
LONG = {"training.steps": 20_000, "training.evaluate_every": 100}
# Runs before app.py: refuses and prints every connection or DNS lookup beyond this machine.
WITHOUT_NETWORK = """
import runpy, socket, sys
genuine, look_up = socket.socket.connect, socket.getaddrinfo
def refuse(host):
    if str(host) not in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "None"):
        print("OUTSIDE", host, file=sys.stderr, flush=True)
        raise OSError("no network")
def connect(self, address):
    if self.family != socket.AF_UNIX:
        refuse(address[0])
    return genuine(self, address)
def getaddrinfo(host, *arguments, **named):
    refuse(host)
    return look_up(host, *arguments, **named)
socket.socket.connect, socket.getaddrinfo = connect, getaddrinfo
sys.argv = ["app.py", *sys.argv[1:]]
runpy.run_path("app.py", run_name="__main__")
"""


@dataclass
class Server:
    """``app.py`` in a process of its own."""

    process: subprocess.Popen
    address: str
    root: Path
    log: Path

    def ended(self, seconds: float) -> int:
        return self.process.wait(timeout=seconds)

    def lines(self) -> list[dict]:
        """Return the log records, one JSON object per line."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def heed_interrupts() -> None:
    """Restore SIGINT, which shells ignore for background jobs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return a function that starts the server from the command line; kill all servers at the end."""
    started: list[Server] = []

    def start(*flags: str, variables: dict[str, str] | None = None) -> Server:
        root, log = tmp_path / "checkpoints", tmp_path / "log"
        shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED, dirs_exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-c", WITHOUT_NETWORK, "--port", str(port), "--checkpoints", str(root), *flags]
        environment = os.environ | (variables or {})
        with log.open("w") as errors:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment,
                stderr=errors,
                stdout=subprocess.DEVNULL,
                preexec_fn=heed_interrupts,
            )
        started.append(Server(process, f"http://127.0.0.1:{port}/", root, log))
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"{started[-1].address}gradio_api/startup-events", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.2)
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait()


def wait_for_step(session: Session, run: str, step: int) -> None:
    """Wait until a run has reached a step."""
    deadline = time.monotonic() + 120
    while session.call("progress", run, -1)["data"][0]["step"] < step:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_sigterm_and_ctrl_c_save_all_runs_and_exit_with_0(start, by: signal.Signals):
    server = start("--public", "--max-active-per-visitor", "none", "--max-training-per-visitor", "none")
    visitor = Session(server.address)
    runs = [visitor.call("train", "tiny", LONG, "")["data"][0]["run"] for _ in range(3)]
    for run in runs[:2]:
        wait_for_step(visitor, run, 20)
    server.process.send_signal(by)
    assert server.ended(60) == 0
    for run in runs[:2]:
        folder = RunFolder(server.root, run)
        assert folder.read_info().status == "stopped"
        assert folder.read_info().step >= 20
        assert folder.last.exists()
    assert RunFolder(server.root, runs[2]).read_info().status == "stopped"  # it was queued
    ends = [line for line in server.lines() if line["message"] == "ended"]
    closing = next(line for line in server.lines() if line["message"] == "closing")
    assert {line["run"] for line in ends} == {f"{run[:-20]}..." for run in runs[:2]}
    assert max(line["time"] for line in ends) > closing["time"]


def test_it_starts_and_decodes_without_network_access(start):
    server = start("--log-json")
    visitor = Session(server.address)
    page = visitor.http.get("/").text
    assert visitor.call("decode", SHIPPED, "4829", {}, "", "", "", "zero")["data"][0]["output"] == list("9284")
    assert "Attention Lab" in page
    assert server.process.poll() is None
    assert "OUTSIDE" not in server.log.read_text()
    assert [
        word for word in ("fonts.googleapis.com", "cdn.", "huggingface.co/api") if f'src="https://{word}' in page
    ] == []


def test_health_responds_quickly_while_two_runs_train(start, ping_idle):
    server = start("--public", "--max-training-per-visitor", "none")
    visitor = Session(server.address)
    for run in [visitor.call("train", "tiny", LONG, "")["data"][0]["run"] for _ in range(2)]:
        wait_for_step(visitor, run, 5)
    with httpx.Client(base_url=server.address) as client:
        times, idle = [], []
        for _ in range(100):
            start_time = time.perf_counter()
            health = client.get("/health").json()
            times.append(1000 * (time.perf_counter() - start_time))
            idle.append(ping_idle())
            time.sleep(0.02)
    assert health["ok"] is True
    assert health["runs"] == {"training": 2, "queued": 0}
    assert health["uptime_seconds"] > 0
    assert health["version"]
    slowest = statistics.quantiles(times, n=20)[-1]
    assert slowest < 250 * slowdown(statistics.quantiles(idle, n=20)[-1])


def test_log_lines_are_json_and_contain_no_cookie(start):
    server = start("--public")
    visitor = Session(server.address)
    visitor.call("stop", "nobody")
    visitor.http.get("/download/nobody?secret=in-the-address")
    visitor.http.get(f"/download/{'tiny-1-' + 'ab12' * 6}.zip")
    run = visitor.call("train", "tiny", {"training.steps": 2, "training.warmup_steps": 0}, "")["data"][0]["run"]
    wait_for_step(visitor, run, 2)
    server.process.terminate()
    server.ended(60)
    lines = server.lines()
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert [line["path"] for line in lines if line["message"] == "request failed"] == [
        "/download/nobody",
        "/download/tiny-1-ab12....zip",
    ]
    assert {"queued", "ended", "closing"} <= {line["message"] for line in lines}
    token = visitor.http.cookies["attention-lab-visitor"]
    assert token not in server.log.read_text()
    assert run not in server.log.read_text()
    assert [line["run"] for line in lines if line["message"] == "ended"] == [f"{run[:-20]}..."]
    assert "in-the-address" not in server.log.read_text()


def test_limits_come_from_flags_and_environment_variables(start):
    server = start("--max-steps", "7", variables={"ATTENTION_LAB_PUBLIC": "1", "ATTENTION_LAB_MAX_INPUT": "3"})
    visitor = Session(server.address)
    answer = json.dumps(visitor.call("train", "tiny", {"training.steps": 8, "training.warmup_steps": 0}, ""))
    assert "training.steps=8 is more than this server allows: at most 7" in answer
    assert "the maximum is 3" in json.dumps(visitor.call("decode", SHIPPED, "4829", {}, "", "", "", "zero"))


def test_an_invalid_limit_exits_with_the_reason(start):
    server = start("--max-runs", "many")
    assert server.ended(30) == 2
    assert "max_runs='many' is not a valid limit: use a whole number above 0" in server.log.read_text()
