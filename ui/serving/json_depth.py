"""Refuse JSON that is nested too deeply for the library that reads it, before it answers with an error of its own."""

import json
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_DEPTH = 50  # of lists and objects in each other
_PATH = "/gradio_api/mcp"


class JsonDepth:
    """Middleware that answers a request to the tools with status 400 if its JSON is nested too deeply.

    Its body has been limited before, see ``RequestLimits``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(_PATH):
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []
        while not messages or messages[-1].get("more_body", False):
            messages.append(await receive())
        if is_too_deep(b"".join(message.get("body", b"") for message in messages)):
            reason = f"The JSON is nested too deeply; the maximum is {MAX_DEPTH} levels."
            await PlainTextResponse(reason, status_code=400)(scope, receive, send)
            return

        async def receive_again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self.app(scope, receive_again, send)


def is_too_deep(body: bytes) -> bool:
    """Whether JSON has more than ``MAX_DEPTH`` levels; False for what is no JSON, which the library refuses itself."""
    try:
        level: list[Any] = [json.loads(body)]
    except RecursionError:
        return True
    except ValueError:
        return False
    for _ in range(MAX_DEPTH):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return any(isinstance(each, list | dict) for each in level)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
