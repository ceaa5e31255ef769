"""Limits on request sizes and hourly uploads, checked before a request's body is read."""

import threading
import time
from collections import deque

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from core.server.limits import MEGABYTE, Limits
from ui.serving.visitors import visitor_of

MAX_JSON_BYTES = 2 * MEGABYTE
_FORM_BYTES = 10_000  # overhead of a multipart form around its file
_HOUR = 3600.0


class UploadQuota:
    """The uploads of the last hour, by visitor."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._uploads: deque[tuple[float, str | None, int]] = deque()  # (time, owner, bytes)
        self._lock = threading.Lock()

    def refusal(self, owner: str | None, size: int) -> str:
        """Count an upload and return "", or return why it exceeds the quota."""
        with self._lock:
            while self._uploads and time.monotonic() - self._uploads[0][0] > _HOUR:
                self._uploads.popleft()
            for quota, used, whose in (
                (
                    self._limits.max_uploads_mb_per_visitor,
                    sum(n for _, by, n in self._uploads if by == owner),
                    "you have",
                ),
                (self._limits.max_uploads_mb, sum(n for *_, n in self._uploads), "all visitors have"),
            ):
                if quota is not None and used + size > quota * MEGABYTE:
                    return (
                        f"upload={size:,} bytes exceeds the quota: {whose} used {used:,} bytes of {quota:,} MB an hour"
                    )
            self._uploads.append((time.monotonic(), owner, size))
        return ""


class RequestLimits:
    """Middleware that refuses requests with a body that is too large or of unknown length."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits, self.uploads = app, limits, UploadQuota(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS", "DELETE"):
            status, reason = self._refusal(scope)
            if status:
                await PlainTextResponse(reason, status_code=status)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        length = Headers(scope=scope).get("content-length", "")
        if not length.isdecimal() or len(length) > 18:
            return 411, "The request must have a Content-Length."
        is_upload = scope["path"].rstrip("/").endswith("/upload")
        maximum = self.limits.max_upload_mb * MEGABYTE + _FORM_BYTES if is_upload else MAX_JSON_BYTES
        if int(length) > maximum:
            return 413, f"The request has {int(length):,} bytes; the maximum is {maximum:,}."
        reason = self.uploads.refusal(visitor_of(scope).owner, int(length)) if is_upload else ""
        return (429, reason) if reason else (0, "")
