"""MCP: the endpoints of ``ui.api`` as tools of language models, at ``/gradio_api/mcp/``.

Gradio describes the tools. It would call them as one visitor for all clients, from this machine's address, so that they
shared their runs, and no limit on a network held. Here each call is a request of the client that sent it: with its
cookie and address it passes the same middleware and the same queue as one of the page.
"""

import html
import json
from typing import Any

import gradio as gr
import httpx
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from core.storage.error_messages import short_repr, shortened
from core.storage.errors import LabError

PATH = "/gradio_api/mcp"
_CALL = "/gradio_api/call"


def closed_routes() -> list[Route]:
    """Return routes that hide the older of Gradio's two transports, which keeps a connection open for every client."""

    async def gone(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"Connect to {PATH}/ by Streamable HTTP.", status_code=404)

    return [Route(f"{PATH}{path}", gone, methods=["GET", "POST"]) for path in ("/sse", "/messages{rest:path}")]


def use_visitors_requests(page: gr.Blocks) -> None:
    """Let tools be called as the visitor who sent the request; call it directly after ``launch``.

    Raises:
        RuntimeError: Gradio could not set MCP up.
    """
    from mcp import types  # optional

    gradio_server = page.mcp_server_obj
    if gradio_server is None:
        raise RuntimeError(page.mcp_error)
    endpoints = gradio_server.api_info["named_endpoints"]

    @gradio_server.mcp_server.call_tool()  # replaces Gradio's
    async def call_tool(name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        endpoint = gradio_server.tool_to_endpoint.get(name)
        if endpoint is None:
            raise LabError(f"tool={short_repr(name, 100)} is not one of {', '.join(gradio_server.tool_to_endpoint)}")
        request = gradio_server.mcp_server.request_context.request
        values = _values(endpoints[endpoint]["parameters"], arguments)
        output = await _call(page.app, request, endpoint, values)
        text = types.TextContent(type="text", text=json.dumps(output, ensure_ascii=False))
        return types.CallToolResult(content=[text], structuredContent=output)


def _values(parameters: list[dict[str, Any]], arguments: dict[str, Any]) -> list[Any]:
    """Return the arguments of a call in the order of its parameters; LabError for unknown or missing ones."""
    names = [each["parameter_name"] for each in parameters]
    if unknown := [name for name in arguments if name not in names]:
        raise LabError(f"{shortened(unknown[0], 100)} is not an argument; there are: {', '.join(names) or 'none'}")
    for each in parameters:
        if not each["parameter_has_default"] and each["parameter_name"] not in arguments:
            raise LabError(f"{each['parameter_name']} is missing")
    return [arguments.get(each["parameter_name"], each.get("parameter_default")) for each in parameters]


async def _call(app: Any, request: Request, endpoint: str, values: list[Any]) -> dict[str, Any]:
    """Call an endpoint of this server for the sender of a request; LabError with the message if it is refused."""
    client = (request.client.host, request.client.port) if request.client else ("", 0)
    headers = {name: request.headers[name] for name in ("host", "cookie") if name in request.headers}
    transport = httpx.ASGITransport(app, client=client)
    address = str(request.base_url.replace(path="/"))
    async with httpx.AsyncClient(transport=transport, base_url=address, headers=headers) as http:
        sent = await http.post(f"{_CALL}{endpoint}", json={"data": values})
        if sent.status_code != 200:
            raise LabError(_refusal(sent))
        answer = await http.get(f"{_CALL}{endpoint}/{sent.json()['event_id']}")
    event, data = _last_event(answer.text)
    if event != "complete":
        message = data.get("error") if isinstance(data, dict) else data
        raise LabError(html.unescape(str(message or "the call ended without an answer; try again")))
    return data[0]


def _refusal(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:1_000]


def _last_event(stream: str) -> tuple[str, Any]:
    """Return name and data of the last of a stream's events that is not a heartbeat."""
    name, data = "", None
    for event in stream.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.split("\n") if ": " in line)
        if fields.get("event", "heartbeat") != "heartbeat":
            name, data = fields["event"], json.loads(fields.get("data", "null"))
    return name, data
