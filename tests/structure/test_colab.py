"""The notebook for Colab starts the page behind a proxy such as Colab's, and knows the repository's address."""

import json
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

import docs.generate
from tests.browser.chromium import CHROMIUM, FLAGS, choose_preset, new_context

REPOSITORY = Path(__file__).resolve().parents[2]
NAME = "abc-7860.colab.example"  # what a browser is told is this machine
CELLS = [
    "".join(cell["source"])
    for cell in json.loads((REPOSITORY / "docs/colab.ipynb").read_text(encoding="utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


@pytest.mark.parametrize(
    ("address", "badge"),
    [
        ("https://github.com/me/lab", "github/me/lab/blob/HEAD/docs/colab.ipynb"),
        ("https://github.com/me/lab.git", "github/me/lab/blob/HEAD/docs/colab.ipynb"),
        ("https://example.org/lab", ""),
        ("", ""),
    ],
)
def test_one_line_of_pyproject_gives_badge_and_notebook_the_address(monkeypatch, tmp_path, address, badge):
    urls = f'[project.urls]\nRepository = "{address}"\n' if address else ""
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "lab"\n{urls}')
    monkeypatch.setattr(docs.generate, "REPOSITORY", tmp_path)
    monkeypatch.setattr(docs.generate, "COLAB", tmp_path / "docs/colab.ipynb")
    assert badge in docs.generate.badge_in_markdown()
    assert bool(badge) == bool(docs.generate.badge_in_markdown())
    written = json.loads(docs.generate.colab_notebook((REPOSITORY / "docs/colab.ipynb").read_text()))
    assert f'REPOSITORY = "{address.removesuffix(".git")}"\n' in [
        line for cell in written["cells"] for line in cell["source"]
    ]


def test_the_first_cell_may_run_again_after_a_restart_of_the_session(monkeypatch, tmp_path):
    ran = []

    def run(command: list[str], *, check: bool) -> None:
        assert check
        ran.append(command[0])
        if command[0] == "git":
            Path(command[-1]).mkdir()  # as git does, which refuses a folder that exists

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(CELLS[0], "cell 1", "exec"), {})  # noqa: S102
    assert ran == ["git", sys.executable, sys.executable]


@pytest.fixture(params=["localhost:7860", NAME], ids=["proxy-names-localhost", "proxy-passes-the-name"])
def proxy(request: pytest.FixtureRequest) -> Iterator[ThreadingHTTPServer]:
    """A proxy that streams answers; it passes on one Host header or the other. Nobody says which is Colab's."""

    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            host = request.param if ":" in request.param else f"{NAME}:{self.server.server_port}"
            sent = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "connection")}
            upstream = HTTPConnection("127.0.0.1", self.server.page_port, timeout=60)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                upstream.request(self.command, self.path, body, sent | {"Host": host})
                answer = upstream.getresponse()
                self.send_response(answer.status)
                for key, value in answer.getheaders():
                    if key.lower() not in ("transfer-encoding", "connection", "server", "date"):
                        self.send_header(key, value)
                self.send_header("Connection", "close")
                self.end_headers()
                while part := answer.read1(65536):
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:  # either side has left
                pass
            finally:
                upstream.close()

        do_GET = do_POST = do_HEAD = do_OPTIONS = forward  # noqa: N815 - names of http.server

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.page_port = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
def test_the_page_that_the_notebook_starts_trains_and_answers_behind_a_proxy(proxy, monkeypatch, tmp_path, capsys):
    (tmp_path / "attention-lab").symlink_to(REPOSITORY)
    output = types.ModuleType("google.colab.output")

    def eval_js(script: str) -> str:
        proxy.page_port = int(script.removeprefix("google.colab.kernel.proxyPort(").removesuffix(")"))
        return f"http://{NAME}:{proxy.server_port}/"

    output.eval_js = eval_js
    for name in ("google", "google.colab"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTENTION_LAB_CHECKPOINTS", str(tmp_path / "runs"))
    names = {"subprocess": subprocess, "sys": sys, "server": None}
    try:
        exec(compile(CELLS[1].replace("7860", str(free_port())), "cell 2", "exec"), names)  # noqa: S102
        address = capsys.readouterr().out.splitlines()[-1]
        with sync_playwright() as playwright:
            rules = f"--host-resolver-rules=MAP {NAME} 127.0.0.1"
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, rules])
            page = new_context(browser).new_page()
            page.goto(address)
            expect(page.locator("#bench-view .answer")).to_have_count(4, timeout=60_000)
            choose_preset(page, "tiny", timeout=60_000)
            page.get_by_role("button", name="Train", exact=True).click()
            expect(page.locator("#run-bar .run .title")).to_contain_text("tiny", timeout=60_000)
            expect(page.locator("#run-bar .status")).to_contain_text("finished", timeout=120_000)
            browser.close()
    finally:
        names["server"].kill()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
