"""The app in its own process, and a client that sends the requests of an open page."""

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
SHIPPED_RUN = "digits-reversal-shipped"
COOKIE = "attention-lab-visitor"
SECONDS_TO_START = 120.0


class AppProcess:
    """``app.py`` with its own checkpoint folder, which contains the shipped run.

    Args:
        folder: an empty folder.
        public: whether to serve it as on a public Space, with ``--public``.

    Attributes:
        address: URL of the page.
        process: the process that serves it.
    """

    def __init__(self, folder: Path, *, public: bool = True) -> None:
        root = folder / "checkpoints"
        shutil.copytree(REPOSITORY / "checkpoints" / SHIPPED_RUN, root / SHIPPED_RUN)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}/"
        command = [sys.executable, "app.py", "--port", str(self._port), "--checkpoints", str(root)]
        command += ["--public"] if public else []
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GRADIO_TEMP_DIR": str(folder / "uploads")}
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL, stderr=self._log
        )

    def wait_until_ready(self) -> None:
        """Wait until the page is served.

        Raises:
            RuntimeError: it is not within ``SECONDS_TO_START``; the message has the end of the log.
        """
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.address}gradio_api/startup-events", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise RuntimeError(f"app.py cannot be reached: {''.join(self.log_lines()[-5:])}")

    def ping(self) -> float:
        """Request ``/health`` over a new connection, as a supervisor does; return the seconds to the response."""
        started = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/health")
            is_healthy = json.loads(connection.getresponse().read())["ok"]
        finally:
            connection.close()
        if not is_healthy:
            raise RuntimeError("/health reports a problem")
        return time.perf_counter() - started

    def megabytes(self, field: str = "VmRSS") -> float:
        """Return the memory of the process in MB: resident now (``VmRSS``) or at its peak (``VmHWM``)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{field}:"))

    def log_lines(self) -> list[str]:
        """Return the lines of the log."""
        self._log.seek(0)
        return self._log.readlines()

    def close(self) -> int:
        """Terminate the process as a supervisor does; return its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self._log.close()


@contextmanager
def serve_app(*, public: bool = True) -> Iterator[AppProcess]:
    """Serve the page until the end of the block, as on a public Space unless ``public`` is false."""
    with tempfile.TemporaryDirectory(prefix="attention-lab-") as folder:
        app = AppProcess(Path(folder), public=public)
        try:
            app.wait_until_ready()
            yield app
        finally:
            app.close()


class PageClient:
    """One visitor's page: sends the requests that its scripts send, without a browser.

    Attributes:
        cookie: identifies the visitor to the server.
    """

    def __init__(self, address: str) -> None:
        self.cookie = secrets.token_urlsafe(32)
        self.http = httpx.Client(base_url=address, timeout=60, cookies={COOKIE: self.cookie})
        self._session = secrets.token_hex(6)
        self._component_ids: dict[str, int] = {}

    def open(self) -> None:
        """Load the HTML and the configuration of the page."""
        self.http.get("/").raise_for_status()
        config = self.http.get("/config").raise_for_status().json()
        self._component_ids = {
            f"{component['props'].get('elem_id')}.{name}": component["id"]
            for component in config["components"]
            for name in component["props"].get("server_fns", [])
        }

    def call_component(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Call a component's server function, such as ``run-bar.list_runs``."""
        body = {"component_id": self._component_ids[name], "fn_name": name.split(".")[-1], "data": data}
        body["session_hash"] = self._session
        return self.http.post("/gradio_api/component_server/", json=body).raise_for_status().json()

    def call_endpoint(self, endpoint: str, *data: Any) -> Any:
        """Call an API endpoint and return its first output.

        Raises:
            RuntimeError: the endpoint reports an error.
        """
        response = self.http.post(f"/gradio_api/call/{endpoint}", json={"data": data}).raise_for_status()
        event_id = response.json()["event_id"]
        lines = self.http.get(f"/gradio_api/call/{endpoint}/{event_id}").text.split("\n")
        last = next(line.removeprefix("data: ") for line in reversed(lines) if line.startswith("data: "))
        if "event: complete" not in lines:
            raise RuntimeError(f"{endpoint}: {last}")
        return json.loads(last)[0]

    def close(self) -> None:
        """Close the connections."""
        self.http.close()
