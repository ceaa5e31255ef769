"""Requests that are too large are refused before they are read."""

import threading
import time
from collections import deque

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from core.server.limits import MEGABYTE, Limits
from ui.serving.visitors import visitor_of

MAX_JSON_BYTES = 2 * MEGABYTE
_FORM_BYTES = 10_000  # what a form adds to the file in it
_HOUR = 3600.0


class Uploads:
    """What was uploaded in the last hour, by whom."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken: deque[tuple[float, str | None, int]] = deque()
        self._lock = threading.Lock()

    def refusal(self, owner: str | None, size: int) -> str:
        """Take an upload and return "", or say why it is refused."""
        with self._lock:
            while self._taken and time.monotonic() - self._taken[0][0] > _HOUR:
                self._taken.popleft()
            for most, used, whose in (
                (
                    self._limits.max_uploads_mb_per_visitor,
                    sum(n for _, by, n in self._taken if by == owner),
                    "you have",
                ),
                (self._limits.max_uploads_mb, sum(n for *_, n in self._taken), "all visitors have"),
            ):
                if most is not None and used + size > most * MEGABYTE:
                    return f"upload={size:,} bytes is too much: {whose} used {used:,} of {most:,} MB an hour"
            self._taken.append((time.monotonic(), owner, size))
        return ""


class RequestLimits:
    """Middleware that goes by the announced length; what announces none, and is to be read, is refused too."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits, self.uploads = app, limits, Uploads(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS", "DELETE"):
            status, reason = self._refusal(scope)
            if status:
                await PlainTextResponse(reason, status_code=status)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        length = Headers(scope=scope).get("content-length", "")
        if not length.isdecimal() or len(length) > 18:
            return 411, "The request must say how long it is."
        is_upload = scope["path"].rstrip("/").endswith("/upload")
        most = self.limits.max_upload_mb * MEGABYTE + _FORM_BYTES if is_upload else MAX_JSON_BYTES
        if int(length) > most:
            return 413, f"The request has {int(length):,} bytes; at most {most:,} are read here."
        reason = self.uploads.refusal(visitor_of(scope).owner, int(length)) if is_upload else ""
        return (429, reason) if reason else (0, "")
