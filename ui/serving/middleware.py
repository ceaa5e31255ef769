"""What surrounds the page on the server: who asks, how much is read, how it is, and a line for what fails."""

import logging
import time
from collections.abc import Sequence
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core import __version__
from core.server import Runs
from ui.serving.page_cache import KeptPage
from ui.serving.request_limits import RequestLimits
from ui.serving.visitors import Presence, Visitors

_log = logging.getLogger(__name__)


class FailuresNoted:
    """Middleware that logs requests which are refused or fail, without what stands behind the ``?``.

    An exception that Gradio lets through, from a request that makes no sense to it, becomes an answer in words.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, began = 0, time.perf_counter()

        async def send_noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        error: Exception | None = None
        try:
            await self.app(scope, receive, send_noting)
        except Exception as raised:  # noqa: BLE001 - it is logged, and answered
            error = raised
            if not status:
                answer = PlainTextResponse("This request cannot be answered.", status_code=400)
                await answer(scope, receive, send_noting)
        if status >= 400 or error:
            said = {"method": scope["method"], "path": scope["path"][:200], "status": status}
            milliseconds = round(1000 * (time.perf_counter() - began), 1)
            level = logging.ERROR if status >= 500 else logging.INFO
            _log.log(level, "request failed", extra=said | {"ms": milliseconds}, exc_info=error)


def around(runs: Runs, presence: Presence | None, routes: Sequence[Route] = ()) -> dict[str, Any]:
    """Return what the server is made with besides the page: its other routes, and its middleware, outermost first.

    Args:
        routes: besides ``/health``.
        presence: to note who is here; None where there are no visitors to tell apart.
    """
    began = time.monotonic()

    async def health(request: Request) -> JSONResponse:  # in the event loop, so that no busy thread delays it
        uptime = round(time.monotonic() - began, 1)
        return JSONResponse({"ok": True, "version": __version__, "runs": runs.counts(), "uptime_seconds": uptime})

    who = [Middleware(Visitors, presence=presence)] if presence is not None else []
    middleware = [Middleware(FailuresNoted), *who, Middleware(RequestLimits, limits=runs.limits), Middleware(KeptPage)]
    return {"routes": [Route("/health", health), *routes], "middleware": middleware}
