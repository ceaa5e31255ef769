"""Uploads are limited in size before they are read, and in total per hour and visitor."""

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import httpx

from core.server.limits import MEGABYTE
from tests.faults.public.conftest import Public
from tests.faults.public.session import Session, reports_a_bug
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for


def event_of(session: Session, elem_id: str) -> int:
    """Return the index of the event that an upload through a button triggers."""
    button = next(each["id"] for each in session.config["components"] if each["props"].get("elem_id") == elem_id)
    return next(each["id"] for each in session.config["dependencies"] if [button, "upload"] in each["targets"])


def opened(session: Session, path: str) -> str:
    """Open an uploaded file as a run; return all messages of the event as JSON."""
    file = {"path": path, "orig_name": "run.safetensors", "meta": {"_type": "gradio.FileData"}}
    return json.dumps(session.trigger(event_of(session, "open-run"), [file]))


def on_disk(public: Public) -> int:
    """Return the bytes of all uploads; the server may delete some of them meanwhile."""
    total = 0
    for file in public.uploads.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def test_a_large_file_is_refused_and_not_stored(public: Public, visit: Callable[[], Session]):
    visitor, before = visit(), on_disk(public)
    assert visitor.upload(bytes(3 * MEGABYTE)).status_code == 413
    assert visitor.http.post("/gradio_api/component_server/", content=bytes(3 * MEGABYTE)).status_code == 413
    lengthless = visitor.http.post("/gradio_api/upload", content=iter([b"x" * 1000]))
    assert lengthless.status_code == 411
    assert on_disk(public) == before


def test_the_hourly_quota_applies_to_each_visitor_separately(public: Public, visit: Callable[[], Session]):
    visitor, another, before = visit(), visit(), on_disk(public)
    answers = [visitor.upload(bytes(50_000), f"{number}.yaml").status_code for number in range(200)]
    assert answers == sorted(answers)
    assert set(answers) == {200, 429}
    assert 70 <= answers.count(200) <= 80  # of 4 MB
    assert on_disk(public) - before <= 4 * MEGABYTE
    assert "of 4 MB an hour" in visitor.upload(bytes(50_000)).text
    assert another.upload(bytes(50_000)).status_code == 200


def announce(visitor: Session, size: int, body: bytes = b"") -> socket.socket:
    """Begin an upload of so many bytes, of which only some are sent."""
    host, port = visitor.http.base_url.host, visitor.http.base_url.port
    cookie = f"attention-lab-visitor={visitor.http.cookies['attention-lab-visitor']}"
    head = f"POST /gradio_api/upload HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\nContent-Length: {size}\r\n"
    connection = socket.create_connection((host, port))
    connection.sendall(f"{head}Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode() + body)
    return connection


def test_announcing_uploads_takes_nothing_from_the_quota(visit: Callable[[], Session]):
    visitor = visit()
    connections = [announce(visitor, 2 * MEGABYTE) for _ in range(42)]
    time.sleep(0.3)
    assert visitor.upload(bytes(50_000)).status_code == 200  # while they are open
    for each in connections:
        each.close()
    time.sleep(0.3)
    assert visitor.upload(bytes(50_000)).status_code == 200


def test_an_interrupted_upload_counts_and_leaves_no_file(public: Public, visit: Callable[[], Session]):
    visitor, before = visit(), on_disk(public)
    part = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n' + bytes(MEGABYTE)
    for _ in range(3):
        with closing(announce(visitor, len(part) + 1000, part)):
            wait_for(lambda: on_disk(public) > before + 0.98 * MEGABYTE)
        wait_for(lambda: on_disk(public) == before)
    refused = visitor.upload(bytes(MEGABYTE))
    assert refused.status_code == 429
    assert "you have used 3,0" in refused.text


def test_uploads_at_the_same_time_keep_the_quota(public: Public, visit: Callable[[], Session]):
    visitor, before = visit(), on_disk(public)

    def upload(number: int) -> httpx.Response:
        return visitor.upload(bytes([number]) * (2 * MEGABYTE - 10_000))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(upload, range(8)))
    assert on_disk(public) - before <= 4 * MEGABYTE
    assert {answer.status_code for answer in answers} <= {200, 429}
    assert "of 4 MB an hour" in next(answer.text for answer in answers if answer.status_code == 429)


def test_a_file_that_is_not_a_run_is_refused(public: Public, visit: Callable[[], Session]):
    visitor = visit()
    for content in (b"", b"PK\x03\x04 pickle", b"\xff" * 8 + b"{}", b'{"a": 1}', bytes(100_000)):
        path = visitor.upload(content).json()[0]
        messages = opened(visitor, path)
        assert '"problem": true' in messages
        assert not reports_a_bug(messages)
    assert visitor.call("list_runs")["data"][0]["runs"][0]["id"] == SHIPPED


def test_only_uploaded_files_can_be_opened(public: Public, visit: Callable[[], Session]):
    visitor = visit()
    shipped = public.runs.root / SHIPPED / "best.safetensors"
    for path in (str(shipped), "/etc/passwd", "http://169.254.169.254/latest/meta-data", f"{public.uploads}/../x", ""):
        messages = opened(visitor, path)
        assert "process_completed" in messages
        assert '"success": false' in messages or '"problem": true' in messages
    assert shipped.exists()
    assert len(visitor.call("list_runs")["data"][0]["runs"]) == 1


def test_a_class_can_open_the_same_file(visit: Callable[[], Session]):
    visitors = [visit() for _ in range(6)]
    file = visitors[0].http.get(f"/download/{SHIPPED}.zip").content
    paths = [visitor.upload(file, "run.zip").json()[0] for visitor in visitors]
    with ThreadPoolExecutor(len(visitors)) as pool:
        messages = list(pool.map(opened, visitors, paths))
    assert ['"problem": true' in each for each in messages] == [False] * len(visitors)
    assert [len(each.call("list_runs")["data"][0]["runs"]) for each in visitors] == [2] * len(visitors)


def test_a_downloaded_run_can_be_uploaded_again(public: Public, visit: Callable[[], Session]):
    visitor = visit()
    file = visitor.http.get(f"/download/{SHIPPED}")
    assert file.headers["content-disposition"] == f"attachment; filename*=utf-8''{SHIPPED}.safetensors"
    messages = opened(visitor, visitor.upload(file.content).json()[0])
    assert '"problem": true' not in messages
    names = [each["id"] for each in visitor.call("list_runs")["data"][0]["runs"]]
    assert len(names) == 2
    assert names[1] == SHIPPED
    answer = visitor.call("decode", names[0], "4829", {}, "", "", "", "zero")["data"][0]
    assert answer["output"] == list("9284")
