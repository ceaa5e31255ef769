"""The static site, built once, served as any host serves files, and opened in a browser."""

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from core.runs import DEFAULT_ROOT, Runs
from tests.browser.chromium import DESKTOP, new_context
from tests.browser.conftest import reload

__all__ = ["reload"]
expect.set_options(timeout=30_000)  # the cores are busy with other tests
COMPARED = ("tiny", "digits-reversal-fast", "deduplicate-digits", "digits-reversal-decoder-only", "addition")
PRESETS = (*COMPARED, "plurals")  # which has dropout, and a browser draws other numbers than PyTorch
NEEDED = "pip install -c requirements-extras.txt -e '.[onnx]'"


class Requests:
    """What browsers asked the host for: method and path of each request, and the bytes of all files sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.sent = 0


class _Files(http.server.SimpleHTTPRequestHandler):
    """The files of a folder, uncompressed and with the fewest headers, as ``python -m http.server`` sends them."""

    def __init__(self, *arguments, requests: Requests, **options) -> None:
        self.requests = requests
        super().__init__(*arguments, **options)

    def parse_request(self) -> bool:
        is_valid = super().parse_request()
        self.requests.seen.append((self.command, self.path))
        return is_valid

    def copyfile(self, source, outputfile) -> None:
        content = source.read()
        self.requests.sent += len(content)
        outputfile.write(content)

    def log_message(self, *arguments) -> None:
        """Nothing: pytest shows what matters."""


@pytest.fixture(scope="session")
def site(worker_id: str) -> Path:
    """The folder of a site with a few presets, one a worker; graphs are kept in the user's cache between sessions."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason=NEEDED)
    from ui.site.build import build_site
    from ui.site.graph_files import cache_folder

    folder = cache_folder() / f"test-site-{worker_id}"
    build_site(folder, presets=PRESETS)
    return folder


@pytest.fixture(scope="session")
def requests() -> Requests:
    return Requests()


@pytest.fixture(scope="session")
def address(site: Path, requests: Requests) -> Iterator[str]:
    handler = functools.partial(_Files, directory=str(site), requests=requests)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def lab_with_shipped_runs(address: str) -> str:
    """The site, which has the translator, too."""
    return address


@pytest.fixture
def errors() -> list[str]:
    """What the page reported in the console as an error; a test that expects some empties it."""
    return []


@pytest.fixture
def new_visitor(chromium: Browser, errors: list[str]) -> Iterator[Callable[..., Page]]:
    """Returns a function that opens a tab of another visitor."""
    contexts = []

    def open_tab(**options) -> Page:
        context = new_context(chromium, **({"viewport": DESKTOP} | options))
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda each: errors.append(each.text) if each.type == "error" else None)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def tab(new_visitor: Callable[..., Page], errors: list[str]) -> tuple[Page, list[str]]:
    """A tab of a new visitor and its console errors, for the fixtures of ``tests/browser``."""
    return new_visitor(), errors


@pytest.fixture
def empty_page(tab: tuple[Page, list[str]], request: pytest.FixtureRequest) -> Page:
    """A tab of a new visitor, for the test to open."""
    tab[0].set_viewport_size(getattr(request, "param", DESKTOP))
    return tab[0]


@pytest.fixture
def page(empty_page: Page, address: str, request: pytest.FixtureRequest) -> Page:
    """The site, opened by a new visitor, with the shipped run on the bench."""
    empty_page.set_viewport_size(getattr(request, "param", DESKTOP))
    empty_page.goto(address)
    expect(empty_page.locator("body[data-ready]")).to_be_attached(timeout=60_000)
    return empty_page


@pytest.fixture(scope="session")
def runs() -> Runs:
    """The runs that ship, as the program reads them."""
    return Runs(DEFAULT_ROOT)
