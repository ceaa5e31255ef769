"""A page of another origin, open in the same browser, cannot use the lab or show it in a frame."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page

UPLOAD = """async (lab) => {
  const form = new FormData();
  form.append("files", new File(["from a foreign page"], "foreign.tsv"));
  await fetch(lab + "gradio_api/upload", { method: "POST", mode: "no-cors", body: form });
}"""
READ = """async (lab) => {
  try { return await (await fetch(lab + "config")).text(); } catch { return ""; }
}"""
FRAME = """(lab) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => setTimeout(() => done(frame.contentWindow.length), 500);
  frame.src = lab;
  document.body.append(frame);
})"""


class _Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title><body></body>")

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def foreign(tab: tuple[Page, list[str]]) -> Iterator[Page]:
    """A page of another port and host name, as a page of another website would be."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page, errors = tab
    page.goto(f"http://localhost:{server.server_port}/")
    yield page
    page.goto("about:blank")
    errors.clear()
    server.shutdown()
    server.server_close()


def test_a_foreign_page_can_neither_upload_nor_read(foreign: Page, address: str):
    path = httpx.post(f"{address}gradio_api/upload", files={"files": ("a.tsv", b"a\tb")}).json()[0]
    for lab in (address, address.replace("127.0.0.1", "localhost")):  # of another site, and of another port
        foreign.evaluate(UPLOAD, lab)
        assert "components" not in foreign.evaluate(READ, lab)
    assert list(Path(path).parents[1].rglob("foreign.tsv")) == []


def test_a_foreign_page_cannot_frame_the_lab(tab: tuple[Page, list[str]], foreign: Page, address: str):
    foreign.evaluate(FRAME, address)
    assert foreign.frames[1].url != address
    assert any("frame-ancestors" in error for error in tab[1])
