"""Language models use the endpoints as tools, with the access and the limits of the visitor who calls."""

import json
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx
import pytest

from core.runs import DEFAULT_ROOT
from core.server import Runs
from core.server.limits import PUBLIC
from tests.serving import SHIPPED
from ui.serving.launch import serve
from ui.serving.visitors import COOKIE, Presence

TOOLS = "list_runs train stop resume rename_run progress decode attention report compare head_importance"
BRIEF = {"training.steps": 20, "training.warmup_steps": 5, "training.evaluate_every": 10}
LONG = {"training.steps": 20_000, "training.evaluate_every": 1_000}


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runs, str]]:
    """A public server with tools; its runs and its address."""
    root = tmp_path_factory.mktemp("checkpoints")
    shutil.copytree(DEFAULT_ROOT / SHIPPED, root / SHIPPED)
    runs = Runs(root, limits=PUBLIC.model_copy(update={"max_queued": 4}))
    page, address = serve(runs, Presence(), mcp=True)
    yield runs, f"{address}gradio_api/mcp/"
    runs.close()
    page.close(verbose=False)


def use(address: str, work: Callable[[Any], Awaitable[Any]], **headers: str) -> Any:
    """Connect a client to the server and return what ``work`` returns of its session."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def connected() -> Any:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=60))
            read, write, *_ = await stack.enter_async_context(streamable_http_client(address, http_client=http))
            session = await stack.enter_async_context(ClientSession(read, write))
            await session.initialize()
            return await work(session)

    return anyio.run(connected)


def call(address: str, name: str, headers: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its result, or {"error": message}."""
    result = use(address, lambda session: session.call_tool(name, arguments), **headers or {})
    text = result.content[0].text
    if result.isError:
        return {"error": text}
    assert json.loads(text) == result.structuredContent
    return result.structuredContent


def visitor() -> dict[str, str]:
    """Return the headers of a new visitor."""
    return {"cookie": f"{COOKIE}={secrets.token_urlsafe(32)}"}


def test_tools_are_the_endpoints_and_each_argument_is_described(public):
    tools = use(public[1], lambda session: session.list_tools()).tools
    assert [each.name for each in tools] == TOOLS.split()
    for tool in tools:
        assert len(tool.description) > 20, tool.name
        for name, schema in tool.inputSchema["properties"].items():
            assert len(schema.get("description", "")) > 10, (tool.name, name)
    decode = next(each for each in tools if each.name == "decode")
    assert decode.inputSchema["required"] == ["run", "input"]


def test_a_model_lists_decodes_trains_and_sees_its_runs_only(public):
    anna, ben = visitor(), visitor()
    assert [each["id"] for each in call(public[1], "list_runs", anna)["runs"]] == [SHIPPED]
    assert call(public[1], "decode", anna, run=SHIPPED, input="4829")["output"] == list("9284")
    run = call(public[1], "train", anna, preset="tiny", changes=BRIEF)["run"]
    assert [each["id"] for each in call(public[1], "list_runs", anna)["runs"]] == [run, SHIPPED]
    assert call(public[1], "progress", anna, run=run)["steps"] == 20
    assert "there is no such run" in call(public[1], "progress", ben, run=run)["error"]
    assert "there is no such run" in call(public[1], "stop", run=run)["error"]


def test_a_client_without_cookies_trains_nothing(public):
    parameters = {"name": "train", "arguments": {"preset": "tiny", "changes": BRIEF}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}
    answer = httpx.post(public[1], json=body, headers={"accept": "application/json, text/event-stream"}, timeout=60)
    assert "sent no cookie" in answer.text


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("decode", {"run": SHIPPED, "input": "4" * 501}, "500"),
        ("decode", {"run": SHIPPED}, "'input' is a required property"),
        ("decode", {"run": SHIPPED, "input": "4", "steps": 1}, "steps is not an argument"),
        ("train", {"preset": "tiny", "changes": {"training.steps": 20_001}}, "20,000"),
        ("remove", {}, "tool='remove' is not one of list_runs, train"),
    ],
)
def test_invalid_calls_are_explained(public, name, arguments, message):
    assert message in call(public[1], name, visitor(), **arguments)["error"]


def test_quotas_hold_for_the_visitor_and_for_the_network_behind_a_proxy(public):
    runs, address = public
    network = {"x-forwarded-for": "203.0.113.7"}
    same = visitor() | network
    answers = [call(address, "train", same, preset="tiny", changes=LONG) for _ in range(3)]
    assert "2 runs from your network are training or queued" in answers[2]["error"]  # half of --max-queued
    invented = call(address, "train", visitor() | network, preset="tiny", changes=LONG)
    assert "2 runs from your network are training or queued" in invented["error"]
    elsewhere = call(address, "train", visitor() | {"x-forwarded-for": "203.0.113.8"}, preset="tiny", changes=LONG)
    assert "run" in elsewhere
    for live in runs.active():
        live.stop.set()


@pytest.mark.parametrize("headers", [{"origin": "https://elsewhere.example"}, {"sec-fetch-site": "cross-site"}])
def test_pages_of_other_sites_are_refused(public, headers):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"accept": "application/json, text/event-stream"}
    assert httpx.post(public[1], json=body, headers=accept).status_code == 200
    assert httpx.post(public[1], json=body, headers=accept | headers).status_code == 403


def test_the_older_transport_is_closed(public):
    assert httpx.get(f"{public[1]}sse").status_code == 404
    assert httpx.post(f"{public[1]}messages/?session_id={'0' * 32}").status_code == 404


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_that_is_nested_too_deeply_is_a_bad_request(public: tuple[Runs, str], opening: str):
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    for depth in (60, 900, 100_000):
        answer = httpx.post(public[1], content=opening * depth, headers=headers)
        assert answer.status_code == 400, depth
    closed = "[" * 60 + "]" * 60
    assert "nested too deeply" in httpx.post(public[1], content=closed, headers=headers).text
