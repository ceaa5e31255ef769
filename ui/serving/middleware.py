"""The server around the page: its middleware, and the ``/health`` route."""

import logging
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core import __version__
from core.server import Runs
from core.server.estimates import Estimates
from ui.serving.call_limits import ThreadLimits
from ui.serving.host_check import HostCheck, HostRules
from ui.serving.json_depth import JsonDepth
from ui.serving.page_cache import PageCache
from ui.serving.page_opening import PageOpening
from ui.serving.request_limits import RequestLimits
from ui.serving.security_headers import SecurityHeaders
from ui.serving.visitors import Presence, VisitorCookies

PAUSE_WHILE_OPENING = 3.0  # seconds
_REPOSITORY = Path(__file__).resolve().parents[2]
_FRAMEWORK = ("gradio", "fastapi", "starlette", "uvicorn", "pydantic")  # packages that read requests
_log = logging.getLogger(__name__)


class ErrorLog:
    """Middleware that logs requests with an error status, without their query strings.

    An exception that Gradio raises for a malformed request becomes a response with status 400, one of this program
    becomes status 500. Messages may repeat what was sent, so only the type and where it was raised are logged.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log it if it fails."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started = 0, time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        error: Exception | None = None
        is_own = False
        try:
            await self.app(scope, receive, send_and_note)
        except Exception as raised:  # noqa: BLE001 - logged and answered below
            error, is_own = raised, _is_own(raised)
            if not status:
                text = "The server failed; its log says where." if is_own else "Malformed request."
                await PlainTextResponse(text, status_code=500 if is_own else 400)(scope, receive, send_and_note)
        if status >= 400 or error:
            fields = {"method": scope["method"], "path": scope["path"][:200], "status": status}
            milliseconds = round(1000 * (time.perf_counter() - started), 1)
            if error:
                fields |= {"error": type(error).__name__, "raised": _raised_at(error, frames=8 if is_own else 1)}
            level = logging.ERROR if status >= 500 or is_own else logging.INFO
            _log.log(level, "request failed", extra=fields | {"ms": milliseconds})


def _is_own(error: Exception) -> bool:
    """Whether an exception was raised in this program, not in the web framework that read the request."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    framework = [index for index, file in enumerate(files) if any(f"/{name}/" in file for name in _FRAMEWORK)]
    inner = files[framework[-1] + 1 :] if framework else files
    return any(Path(file).is_relative_to(_REPOSITORY) and "site-packages" not in file for file in inner)


def _raised_at(error: Exception, *, frames: int) -> str:
    """Return where an exception was raised: ``routes.py:640 in get_page_config``; without its message, which may quote.

    Args:
        frames: how many calls to name, the innermost last.
    """
    last = traceback.extract_tb(error.__traceback__)[-frames:]
    return ", ".join(f"{Path(each.filename).name}:{each.lineno} in {each.name}" for each in last)


class OpeningFirst:
    """Middleware that pauses the measurement of training times while a page opens."""

    def __init__(self, app: ASGIApp, estimates: Estimates) -> None:
        self.app, self.estimates = app, estimates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope["path"] == "/":
            self.estimates.pause(seconds=PAUSE_WHILE_OPENING)
        await self.app(scope, receive, send)


def server_options(
    runs: Runs, presence: Presence | None, hosts: HostRules, routes: Sequence[Route] = ()
) -> dict[str, Any]:
    """Return the options of the FastAPI app: routes besides the page, and middleware, outermost first.

    Args:
        presence: records which visitors are connected; None on a server without separate visitors.
        hosts: the names that the server answers under.
        routes: routes besides ``/health``.
    """
    started = time.monotonic()

    async def health(request: Request) -> JSONResponse:  # async: runs in the event loop, not behind busy threads
        uptime = round(time.monotonic() - started, 1)
        return JSONResponse({"ok": True, "version": __version__, "runs": runs.counts(), "uptime_seconds": uptime})

    visitors = [Middleware(VisitorCookies, presence=presence), Middleware(ThreadLimits)] if presence is not None else []
    limits = Middleware(RequestLimits, limits=runs.limits)
    opening = Middleware(OpeningFirst, estimates=runs.estimates)
    check = Middleware(HostCheck, rules=hosts)
    is_public, on_space = presence is not None, hosts.on_space
    headers = Middleware(SecurityHeaders, on_space=on_space, may_be_framed=is_public or on_space)
    last = [opening, Middleware(JsonDepth), Middleware(PageCache), Middleware(PageOpening)]
    middleware = [headers, Middleware(ErrorLog), check, *visitors, limits, *last]
    return {"routes": [Route("/health", health), *routes], "middleware": middleware}
