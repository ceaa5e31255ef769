"""Foreign pages cannot use the lab of the person who reads them, on their own machine or on a public server."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

import app
from core.config import Preset
from core.runs import RunFolder
from core.server import Runs
from core.storage.errors import InputError
from tests.serving import SHIPPED
from ui.serving.host_check import HostCheck, HostRules, host_rules

OWN = host_rules(public=False, environment={})
ANY = host_rules(public=True, environment={})


def is_refused(rules: HostRules, host: str, origin: str | None = None, *, method: str = "GET", site: str = "") -> bool:
    headers = {"host": host} | ({"origin": origin} if origin else {}) | ({"sec-fetch-site": site} if site else {})
    return bool(rules.refusal(Headers(headers), method=method))


@pytest.mark.parametrize(
    "host",
    [
        "localhost:7860",
        "LOCALHOST",
        "localhost.:7860",
        "lab.localhost",
        "127.0.0.1:1",
        "192.168.1.5:7860",
        "[::1]:7860",
    ],
)
def test_addresses_and_localhost_are_answered(host: str):
    assert not is_refused(OWN, host)


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example:7860",
        "127.0.0.1.rebound.example",
        "localhost.rebound.example",
        "laptop",
        "notlocalhost",
        "user@localhost",
        "localhost:7860/x",
        "localhost, rebound.example",
        "",
    ],
)
def test_other_names_are_not_answered_on_a_laptop(host: str):
    assert is_refused(OWN, host)
    assert not is_refused(ANY, host)  # a public server has every name, and its visitors see only their own runs


def test_allowed_names_are_answered():
    rules = host_rules(["Laptop", "lab.example.org."], bound="studio.local", public=False, environment={})
    for host in ("laptop:7860", "LAPTOP", "lab.example.org", "studio.local:80", "localhost"):
        assert not is_refused(rules, host)
    assert is_refused(rules, "rebound.example")
    public = host_rules(["lab.example.org"], public=True, environment={})
    assert not is_refused(public, "lab.example.org")
    assert not is_refused(public, "127.0.0.1:7860")  # such as the health check of a container
    assert is_refused(public, "rebound.example")


@pytest.mark.parametrize("name", ["http://", "lab:7860", "lab/", "", "l b", "lab,lib", "http://lab/page"])
def test_an_invalid_name_is_refused_by_name(name: str):
    with pytest.raises(InputError, match="allowed_host="):
        host_rules([name], public=False, environment={})


@pytest.mark.parametrize(
    "origin",
    [
        "https://foreign.example",
        "http://localhost",  # another port of this machine
        "http://localhost:7861",
        "http://127.0.0.1:7860",
        "http://sub.localhost:7860",
        "null",
        "file://",
        "chrome-extension://abc",
        "http://localhost:7860.foreign.example",
        "http://localhost:7860@foreign.example",
    ],
)
def test_pages_of_other_origins_are_refused(origin: str):
    assert is_refused(ANY, "localhost:7860", origin)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:7860", "http://localhost:7860"),
        ("Localhost.:7860", "http://localhost:7860"),
        ("[::1]:7860", "http://[::1]:7860"),
        ("lab.example.org", "https://lab.example.org"),  # behind a proxy that encrypts
        ("lab.example.org:80", "http://lab.example.org"),
        ("lab.example.org", "http://lab.example.org"),
    ],
)
def test_the_labs_own_pages_are_answered(host: str, origin: str):
    assert not is_refused(ANY, host, origin, method="POST", site="same-origin")


def test_a_browser_without_origin_is_refused_by_what_it_says_of_the_site():
    for site in ("cross-site", "same-site"):
        assert is_refused(ANY, "lab.example.org", method="POST", site=site)
        assert not is_refused(ANY, "lab.example.org", method="GET", site=site)  # a link, or a frame
    assert not is_refused(OWN, "localhost", method="POST")  # curl, gradio_client


def test_a_space_is_known_by_its_own_name_whatever_its_proxy_passes_on():
    spaces = {"SPACE_HOST": "user-lab.hf.space,lab.example.org"}
    rules = host_rules(public=True, environment=spaces)
    for name in ("user-lab.hf.space", "lab.example.org"):
        assert not is_refused(rules, "10.0.0.7:7860", f"https://{name}", method="POST")
    assert is_refused(rules, "10.0.0.7:7860", "https://other-lab.hf.space", method="POST")
    assert not is_refused(host_rules(public=False, environment=spaces), "user-lab.hf.space")


@pytest.mark.parametrize("host", ["localhost:7860", "lab.example.org", "lab.example.org:8443", "127.0.0.1:7860"])
def test_a_page_behind_a_named_proxy_is_answered_whatever_the_proxy_passes_on(host: str):
    rules = host_rules(["https://Lab.example.org:8443/"], public=False, environment={})
    assert not is_refused(rules, host, "https://lab.example.org:8443", method="POST")
    for origin in ("https://lab.example.org:9443", "https://foreign.example", "null"):
        assert is_refused(rules, host, origin, method="POST")
    assert is_refused(rules, "rebound.example", "https://lab.example.org:8443", method="POST")


def test_two_host_headers_are_refused():
    headers = Headers(raw=[(b"host", b"localhost"), (b"host", b"rebound.example")])
    assert OWN.refusal(headers, method="GET")


def test_websockets_are_covered():
    async def accept(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    rules = host_rules(["testserver"], public=False, environment={})
    client = TestClient(
        Starlette(routes=[WebSocketRoute("/ws", accept)], middleware=[Middleware(HostCheck, rules=rules)])
    )
    with client.websocket_connect("/ws", headers={"origin": "http://testserver"}):
        pass
    for headers in ({"origin": "https://foreign.example"}, {"host": "rebound.example"}):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws", headers=headers):
            pass


# ---- the attack on the served page


FOREIGN = {"origin": "https://foreign.example"}
ENDPOINTS = [
    ("GET", "/"),
    ("GET", "/config"),
    ("GET", "/gradio_api/info"),
    ("GET", "/gradio_api/queue/data?session_hash=abc"),
    ("GET", "/gradio_api/heartbeat/abc"),
    ("GET", "/gradio_api/call/list_runs/abc"),
    ("GET", f"/download/{SHIPPED}.zip"),
    ("GET", "/health"),
    ("GET", "/nothing/here"),
    ("POST", "/gradio_api/call/train"),
    ("POST", "/gradio_api/call/v2/train"),
    ("POST", "/gradio_api/run/train"),
    ("POST", "/gradio_api/queue/join"),
    ("POST", "/gradio_api/component_server/"),
    ("POST", "/gradio_api/upload"),
    ("POST", "/gradio_api/reset"),
]


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    """One client of the page: to make one takes longer than the page takes to refuse it."""
    with httpx.Client(base_url=address) as client:
        yield client


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_every_endpoint_refuses_foreign_pages(client: httpx.Client, method: str, path: str):
    for headers in (FOREIGN, {"origin": "null"}, {"host": "rebound.example"}, {"host": "laptop:7860"} | FOREIGN):
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == 403
        assert answer.headers["content-type"].startswith("text/plain")


def test_a_blind_upload_leaves_nothing_on_disk(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def files() -> list[Path]:
        return list(uploads.rglob("*"))

    path = httpx.post(f"{address}gradio_api/upload", files={"files": ("a.tsv", b"a\tb")}).json()[0]
    uploads = Path(path).parents[1]
    before = files()
    headers = FOREIGN | {"sec-fetch-site": "cross-site"}
    refused = httpx.post(f"{address}gradio_api/upload", files={"files": ("b.tsv", b"c\td")}, headers=headers)
    assert refused.status_code == 403
    assert files() == before


def test_a_foreign_page_can_delete_nothing(runs: Runs, address: str, tiny: Preset):
    RunFolder.create(runs.root, tiny, name="mine", status="finished")
    config = httpx.get(f"{address}config").json()
    component = next(each["id"] for each in config["components"] if "delete" in each["props"].get("server_fns", []))
    body = {"component_id": component, "fn_name": "delete", "data": {"run": "mine"}, "session_hash": "abc"}
    target = f"{address}gradio_api/component_server/"
    assert httpx.post(target, json=body, headers=FOREIGN).status_code == 403
    assert "mine" in list(runs)
    assert httpx.post(target, json=body).status_code == 200
    assert "mine" not in list(runs)


def test_the_message_names_the_flag(address: str):
    answer = httpx.get(address, headers={"host": "laptop:7860"})
    assert "does not answer under the host name 'laptop:7860'" in answer.text
    assert "python app.py --allowed-host laptop" in answer.text
    assert httpx.get(address, headers={"host": "<script>"}).headers["content-type"].startswith("text/plain")


def test_the_flag_and_its_variable_are_checked_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("raise_file_limit", "log_to_stderr", "sys.setswitchinterval", "torch.set_num_threads"):
        monkeypatch.setattr(f"app.{name}", lambda *_, **__: None)
    monkeypatch.setattr("sys.argv", ["app.py", "--allowed-host", "laptop:80"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    assert "allowed_host='laptop:80' must be a name or an address without a port" in capsys.readouterr().err
