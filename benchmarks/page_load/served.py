"""The app in a process of its own, as strangers get it, and what the system knows of that process."""

import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = "digits-reversal-shipped"
COOKIE = "attention-lab-visitor"
SECONDS_TO_START = 120.0


class Served:
    """``app.py --public`` over a folder of its own, which holds the shipped run.

    Args:
        folder: an empty one.
        counting: whether figures of matplotlib are to be counted, which takes a little time of the process.

    Attributes:
        address: of the page.
        process: the one that serves it.
    """

    def __init__(self, folder: Path, *, counting: bool) -> None:
        root = folder / "checkpoints"
        shutil.copytree(REPOSITORY / "checkpoints" / SHIPPED, root / SHIPPED)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}/"
        self._figures = folder / "figures"
        program = ["-m", "benchmarks.page_load.counting", str(self._figures)] if counting else ["app.py"]
        command = [sys.executable, *program, "--public", "--port", str(self._port), "--checkpoints", str(root)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GRADIO_TEMP_DIR": str(folder / "uploads")}
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, stderr=self._log
        )

    def wait_until_ready(self) -> None:
        """Wait for the page to be served; RuntimeError with the end of its log if it never is."""
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.address}gradio_api/startup-events", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise RuntimeError(f"app.py cannot be reached: {''.join(self.log_lines()[-5:])}")

    def ping(self) -> float:
        """Ask ``/health`` over a new connection, as a supervisor does; return the seconds to its answer."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/health")
            healthy = json.loads(connection.getresponse().read())["ok"]
        finally:
            connection.close()
        if not healthy:
            raise RuntimeError("/health says that all is not well")
        return time.perf_counter() - began

    def megabytes(self, field: str = "VmRSS") -> float:
        """Return the memory of the process now, or at its highest (``VmHWM``), in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{field}:"))

    def threads(self) -> int:
        """Return how many threads the process has."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def open_files(self) -> int:
        """Return how many files and connections it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def figures(self) -> int:
        """Return how many figures of matplotlib there were a few seconds ago."""
        return int(self._figures.read_text() or 0)

    def log_lines(self) -> list[str]:
        """Return what it logged."""
        self._log.seek(0)
        return self._log.readlines()

    def close(self) -> int:
        """End it as a supervisor does; return its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self._log.close()


@contextmanager
def served(*, counting: bool = False) -> Iterator[Served]:
    """Serve the page until the end of the block; ``counting`` as for ``Served``."""
    with tempfile.TemporaryDirectory(prefix="attention-lab-") as folder:
        app = Served(Path(folder), counting=counting)
        try:
            app.wait_until_ready()
            yield app
        finally:
            app.close()


class Page:
    """The page in one visitor's browser, as far as the server can tell: what its scripts ask for.

    Attributes:
        cookie: by which the server knows the visitor.
    """

    def __init__(self, address: str) -> None:
        self.cookie = secrets.token_urlsafe(32)
        self.http = httpx.Client(base_url=address, timeout=60, cookies={COOKIE: self.cookie})
        self._session = secrets.token_hex(6)
        self._places: dict[str, int] = {}

    def open(self) -> None:
        """Load the page: its HTML, and what it is made of."""
        self.http.get("/").raise_for_status()
        config = self.http.get("/config").raise_for_status().json()
        self._places = {
            f"{each['props'].get('elem_id')}.{name}": each["id"]
            for each in config["components"]
            for name in each["props"].get("server_fns", [])
        }

    def ask(self, place: str, question: dict[str, Any]) -> dict[str, Any]:
        """Call a component's function on the server, such as ``run-bar.list_runs``."""
        body = {"component_id": self._places[place], "fn_name": place.split(".")[-1], "data": question}
        body["session_hash"] = self._session
        return self.http.post("/gradio_api/component_server/", json=body).raise_for_status().json()

    def call(self, endpoint: str, *data: Any) -> Any:
        """Call an endpoint for programs; RuntimeError if it refuses."""
        event = (
            self.http.post(f"/gradio_api/call/{endpoint}", json={"data": data}).raise_for_status().json()["event_id"]
        )
        told = self.http.get(f"/gradio_api/call/{endpoint}/{event}").text.split("\n")
        last = next(line.removeprefix("data: ") for line in reversed(told) if line.startswith("data: "))
        if "event: complete" not in told:
            raise RuntimeError(f"{endpoint}: {last}")
        return json.loads(last)[0]

    def close(self) -> None:
        """End the connections."""
        self.http.close()
