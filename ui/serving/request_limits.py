"""Limits on request sizes, checked before a request's body is read, and on hourly uploads, counted as they arrive."""

import threading
import time
from collections import Counter, deque

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.server.limits import MEGABYTE, Limits
from ui.serving.visitors import visitor_of

MAX_JSON_BYTES = 2 * MEGABYTE
_FORM_BYTES = 10_000  # overhead of a multipart form around its file


class UploadQuota:
    """The bytes that arrived in uploads during the last hour, by visitor. What a request announces does not count."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._minutes: deque[tuple[int, Counter[str | None]]] = deque()  # (minute, bytes by owner)
        self._by_owner: Counter[str | None] = Counter()  # sum of ``_minutes``
        self._lock = threading.Lock()

    def refusal(self, owner: str | None, size: int) -> str:
        """Return why so many more bytes exceed the quota, or ""."""
        with self._lock:
            self._forget_old()
            for quota, used, whose in (
                (self._limits.max_uploads_mb_per_visitor, self._by_owner[owner], "you have"),
                (self._limits.max_uploads_mb, self._by_owner.total(), "all visitors have"),
            ):
                if quota is not None and used + size > quota * MEGABYTE:
                    return (
                        f"upload={size:,} bytes exceeds the quota: {whose} used {used:,} bytes of {quota:,} MB an hour"
                    )
        return ""

    def count(self, owner: str | None, size: int) -> None:
        """Count bytes that have arrived."""
        minute = int(time.monotonic() // 60)
        with self._lock:
            if not self._minutes or self._minutes[-1][0] != minute:
                self._minutes.append((minute, Counter()))
            self._minutes[-1][1][owner] += size
            self._by_owner[owner] += size

    def _forget_old(self) -> None:
        while self._minutes and self._minutes[0][0] <= time.monotonic() // 60 - 60:
            self._by_owner -= self._minutes.popleft()[1]  # drops owners who used nothing else


class RequestLimits:
    """Middleware that refuses bodies that are too large or of unknown length, and uploads over the quota."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits, self.uploads = app, limits, UploadQuota(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE"):
            await self.app(scope, receive, send)
            return
        status, reason = self._refusal(scope)
        if status:
            await PlainTextResponse(reason, status_code=status)(scope, receive, send)
        elif _is_upload(scope):
            await self._upload(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an upload on, and count what arrives of it.

        If reading raises ``MultiPartException``, Gradio deletes the part of a file that it has and answers with the
        message; other exceptions would leave the part on the disk.
        """
        owner, status, has_ended = visitor_of(scope).owner, 0, False

        async def receive_and_count() -> Message:
            nonlocal status, has_ended
            message = await receive()
            if message["type"] == "http.disconnect" and not has_ended:
                raise MultiPartException("The upload was interrupted.")
            size = len(message.get("body", b""))
            if reason := self.uploads.refusal(owner, size):
                status = 429
                raise MultiPartException(reason)
            self.uploads.count(owner, size)
            has_ended = not message.get("more_body", False)
            return message

        async def send_with_status(message: Message) -> None:
            if message["type"] == "http.response.start" and status:
                message["status"] = status
            await send(message)

        await self.app(scope, receive_and_count, send_with_status)

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        length = Headers(scope=scope).get("content-length", "")
        if not length.isdecimal() or len(length) > 18:
            return 411, "The request must have a Content-Length."
        is_upload = _is_upload(scope)
        maximum = self.limits.max_upload_mb * MEGABYTE + _FORM_BYTES if is_upload else MAX_JSON_BYTES
        if int(length) > maximum:
            return 413, f"The request has {int(length):,} bytes; the maximum is {maximum:,}."
        reason = self.uploads.refusal(visitor_of(scope).owner, int(length)) if is_upload else ""
        return (429, reason) if reason else (0, "")


def _is_upload(scope: Scope) -> bool:
    return bool(scope["path"].rstrip("/").endswith("/upload"))
