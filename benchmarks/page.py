"""``bench page``: how long it takes until something is there: the first page, the list of presets, an answer.

Each is a process of its own, timed from its start, with whatever the machine's disk cache holds; medians of a few.
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

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3
_PATIENCE = 120.0  # seconds


def run_bench(options: argparse.Namespace) -> dict[str, Any]:
    """Start each a few times, and print a table."""
    pages = [seconds_to_first_page() for _ in range(ROUNDS)]
    lists = [seconds_to_list_presets() for _ in range(ROUNDS)]
    print(f"starting, medians of {ROUNDS} (worst)")
    for what, seconds in (("python app.py, first page", pages), ("python -m core presets", lists)):
        print(f"  {what:30} {median(seconds):>8.1f} s ({max(seconds):.1f} s)")
    return {"first_page_seconds": pages, "presets_seconds": lists}


def seconds_to_first_page() -> float:
    """Start the app on a free port and return how long it takes until it has served its page in full."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.perf_counter()
    app = subprocess.Popen(  # noqa: S603 - of this project, with a port of our own
        [sys.executable, "app.py", "--port", str(port)],
        cwd=ROOT,
        env=os.environ | {"GRADIO_ANALYTICS_ENABLED": "False"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _serves(port):
            if app.poll() is not None or time.perf_counter() - started > _PATIENCE:
                raise RuntimeError("the app did not serve its page")
            time.sleep(0.05)
        return time.perf_counter() - started
    finally:
        app.terminate()
        app.wait()


def seconds_to_list_presets() -> float:
    """Return how long ``python -m core presets`` takes."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "core", "presets"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _serves(port: int) -> bool:
    """Whether the app answers with all of what its page is made of."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/config")
        answer = connection.getresponse()
        return answer.status == HTTPStatus.OK and bool(answer.read())
    except OSError:
        return False
    finally:
        connection.close()
