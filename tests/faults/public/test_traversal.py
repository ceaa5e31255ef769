"""Path traversal and forged requests leak no file, reach no other server and cause no server error."""

import itertools
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from tests.faults.public.conftest import Public
from tests.serving import SHIPPED
from ui.serving.assets import asset_address

REPOSITORY = Path(__file__).resolve().parents[3]
TARGETS = [
    "/etc/passwd",
    "/proc/self/environ",
    f"{REPOSITORY}/app.py",
    f"{REPOSITORY}/README.md",
    f"{REPOSITORY}/presets/tiny.yaml",
    "app.py",
    f"checkpoints/{SHIPPED}/run.json",
    "core/config/preset.py",
    "/proc/self/cmdline",
    "pyproject.toml",
]
MARKS = (
    "root:x:",
    "Attention Lab in a browser",
    "attention-lab-run-1",
    "A small model for a small task",
    "short_description",
)
ROUTES = ["", "file=", "gradio_api/file=", "gradio_api/file/", "static/", "assets/", "svelte/", "download/"]
ROUTES += ["custom_component/", "gradio_api/stream/", "theme.css/", asset_address(""), "lab/0/"]
CLIMBS = [
    "",
    "../../../../../../..",
    "..%2f..%2f..%2f..%2f..",
    "%2e%2e/%2e%2e/%2e%2e",
    "....//....//",
    "..\\..\\",
    "/",
    "file://",
]
ELSEWHERE = [
    "http://169.254.169.254/latest/meta-data",
    "http://localhost:22/",
    "file:///etc/passwd",
    "http://[::1]/",
    "gopher://127.0.0.1/",
    "%00",
    "https://example.org/%00",
]


def test_path_traversal_leaks_no_file_and_reaches_no_server(public: Public):
    broken = []
    paths = [f"{route}{climb}{target}" for route, climb, target in itertools.product(ROUTES, CLIMBS, TARGETS)]
    paths += [
        f"{route}{url}" for route in ("proxy=", "gradio_api/proxy=", "file=", "gradio_api/file=") for url in ELSEWHERE
    ]
    with httpx.Client(base_url=public.address, timeout=60) as client:
        for path in paths:
            request = client.build_request("GET", "/")
            request.url = request.url.copy_with(raw_path=f"/{path}".encode())
            answer = client.send(request)
            assert not [mark for mark in MARKS if mark in answer.text and "<!doctype html>" not in answer.text[:200]], (
                path
            )
            if answer.status_code >= 500:
                broken.append(path)
            assert answer.status_code != 200 or "text/html" in answer.headers["content-type"], path
    assert broken == []


def test_internal_routes_are_not_served(public: Public):
    config = httpx.get(f"{public.address}config").text
    assert str(public.runs.root) not in config
    assert str(REPOSITORY) not in config
    for path in (
        "monitoring",
        "monitoring/summary",
        "gradio_api/runs",
        "docs",
        "redoc",
        "dev/reload",
        "gradio_api/vibe-code/",
    ):
        answer = httpx.get(f"{public.address}{path}", follow_redirects=True)
        assert 400 <= answer.status_code < 500 or "<!doctype html>" in answer.text[:200].lower(), path


@pytest.mark.parametrize(
    "path",
    [
        "../page.py",
        "page.py",
        "web/../page.py",
        "web/../../app.py",
        "../../../app.py",
        "%2e%2e/app.py",
        "..%2f..%2fapp.py",
        "components/component.py",
        "components/bench/bench.html",
        "web//page.js",
        "",
    ],
)
def test_only_scripts_styles_and_pictures_are_served_with_the_page(public: Public, path: str):
    server = httpx.URL(public.address)
    for folder in (asset_address(""), "lab/0/"):
        connection = HTTPConnection(server.host, server.port, timeout=60)  # which leaves the path as it is
        connection.request("GET", f"/{folder}{path}")
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 404
        assert len(text) < 100


def test_scripts_are_served_with_the_page(public: Public):
    assert httpx.get(f"{public.address}{asset_address('web/page.js')}").status_code == 200
