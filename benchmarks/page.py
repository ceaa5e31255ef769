"""``bench page``: startup time of the app and of the command line.

Each is started in its own process, with the current state of the disk cache.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
ROUNDS = 3
_TIMEOUT = 120.0  # seconds


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Start each ``ROUNDS`` times and print a table."""
    page_seconds = [seconds_to_first_page() for _ in range(ROUNDS)]
    presets_seconds = [seconds_to_list_presets() for _ in range(ROUNDS)]
    print(f"startup, medians of {ROUNDS} (worst)")
    for name, seconds in (("python app.py, first page", page_seconds), ("python -m core presets", presets_seconds)):
        print(f"  {name:30} {median(seconds):>8.1f} s ({max(seconds):.1f} s)")
    return {"first_page_seconds": page_seconds, "presets_seconds": presets_seconds}


def seconds_to_first_page() -> float:
    """Start the app on a free port and return the seconds until it has served its page completely."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.perf_counter()
    app = subprocess.Popen(  # noqa: S603 - the app of this repository
        [sys.executable, "app.py", "--port", str(port)],
        cwd=REPOSITORY,
        env=os.environ | {"GRADIO_ANALYTICS_ENABLED": "False"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _serves_page(port):
            if app.poll() is not None or time.perf_counter() - started > _TIMEOUT:
                raise RuntimeError("the app did not serve its page")
            time.sleep(0.05)
        return time.perf_counter() - started
    finally:
        app.terminate()
        app.wait()


def seconds_to_list_presets() -> float:
    """Return the seconds that ``python -m core presets`` takes."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "core", "presets"], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _serves_page(port: int) -> bool:
    """Whether the app answers with the configuration of its whole page."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/config")
        response = connection.getresponse()
        return response.status == HTTPStatus.OK and bool(response.read())
    except OSError:
        return False
    finally:
        connection.close()
