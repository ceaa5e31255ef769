"""The page cache: one response per address, gzipped on request."""

from itertools import count

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ui.serving.page_cache import MAX_CACHED, PageCache


@pytest.fixture
def client() -> TestClient:
    """Every answer that is made has another number."""
    numbers = count()

    def made(request):
        status = int(request.query_params.get("status", 200))
        return PlainTextResponse(f"{next(numbers)} of {request.url.path} " + 1000 * "x", status_code=status)

    routes = [Route(path, made, methods=["GET", "POST"]) for path in ("/", "/config", "/other")]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(PageCache)]))


def test_the_page_and_its_configuration_are_cached(client):
    pages = [client.get(path).text for path in ("/", "/config", "/", "/config", "/?run=a&tab=decode")]
    assert [page.split(" x")[0] for page in pages] == ["0 of /", "1 of /config", "0 of /", "1 of /config", "0 of /"]


def test_nothing_else_is_cached(client):
    for fetch in (
        lambda: client.get("/other"),
        lambda: client.post("/"),
        lambda: client.get("/?deep_link=a"),
        lambda: client.get("/config?page=b"),
    ):
        assert fetch().text != fetch().text


def test_errors_are_not_cached(client):
    failed = client.get("/?status=500")
    assert failed.status_code == 500
    assert client.get("/").text != failed.text


@pytest.mark.parametrize("name", ["host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server"])
def test_each_address_is_cached_separately(client, name):
    first, second = (client.get("/", headers={name: value}).text for value in ("a.example", "b.example"))
    assert first != second
    assert client.get("/", headers={name: "a.example"}).text == first


def test_responses_are_gzipped_for_clients_that_accept_it(client):
    client.get("/")
    packed = client.get("/", headers={"accept-encoding": "gzip, br"})
    plain = client.get("/", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < 200 < int(plain.headers["content-length"])
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text
    assert packed.headers["content-type"] == plain.headers["content-type"] == "text/plain; charset=utf-8"
    assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


def test_the_cache_is_bounded(client):
    first = client.get("/", headers={"host": "0.example"}).text
    for number in range(1, MAX_CACHED + 1):
        client.get("/", headers={"host": f"{number}.example"})
    assert client.get("/", headers={"host": "0.example"}).text != first
