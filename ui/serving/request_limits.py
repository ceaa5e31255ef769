"""Limits on request sizes, checked before a request's body is read, and on hourly uploads, counted as they arrive."""

import threading
import time
from collections import Counter, deque

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.server.access import Visitor
from core.server.limits import MEGABYTE, Limits
from ui.serving.visitors import visitor_of

MAX_JSON_BYTES = 2 * MEGABYTE
_FORM_BYTES = 10_000  # overhead of a multipart form around its file


class UploadQuota:
    """The bytes that arrived in uploads during the last hour. What a request announces does not count."""

    def __init__(self, limits: Limits) -> None:
        total, network = limits.max_uploads_mb, None
        if total is not None:
            network = max(1, total // 2)  # whatever cookies it sends
        self._quotas = {"you have": limits.max_uploads_mb_per_visitor, "your network has": network}
        self._quotas["your provider's network has"] = None if total is None else max(1, total * 3 // 4)  # of IPv6
        self._quotas["all visitors have"] = total
        self._minutes: deque[tuple[int, Counter[tuple[str, str]]]] = deque()  # (minute, bytes by whose and by whom)
        self._used: Counter[tuple[str, str]] = Counter()  # sum of ``_minutes``
        self._lock = threading.Lock()

    def refusal(self, visitor: Visitor, size: int) -> str:
        """Return why so many more bytes of a visitor exceed a quota, or ""."""
        with self._lock:
            self._forget_old()
            for whose, who in self._keys(visitor):
                quota, used = self._quotas[whose], self._used[whose, who]
                if quota is not None and used + size > quota * MEGABYTE:
                    return (
                        f"upload={size:,} bytes exceeds the quota: {whose} used {used:,} bytes of {quota:,} MB an hour"
                    )
        return ""

    def count(self, visitor: Visitor, size: int) -> None:
        """Count bytes that have arrived."""
        minute = int(time.monotonic() // 60)
        with self._lock:
            if not self._minutes or self._minutes[-1][0] != minute:
                self._minutes.append((minute, Counter()))
            for key in self._keys(visitor):
                self._minutes[-1][1][key] += size
                self._used[key] += size

    def _keys(self, visitor: Visitor) -> list[tuple[str, str]]:
        keys = [("you have", visitor.owner or ""), ("all visitors have", "")]
        if not visitor.network:
            return keys
        return [*keys, ("your network has", visitor.network), ("your provider's network has", visitor.site)]

    def _forget_old(self) -> None:
        while self._minutes and self._minutes[0][0] <= time.monotonic() // 60 - 60:
            self._used -= self._minutes.popleft()[1]  # drops those who used nothing else


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
        visitor, status, has_ended = visitor_of(scope), 0, False

        async def receive_and_count() -> Message:
            nonlocal status, has_ended
            message = await receive()
            if message["type"] == "http.disconnect" and not has_ended:
                raise MultiPartException("The upload was interrupted.")
            size = len(message.get("body", b""))
            if reason := self.uploads.refusal(visitor, size):
                status = 429
                raise MultiPartException(reason)
            self.uploads.count(visitor, size)
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
        reason = self.uploads.refusal(visitor_of(scope), int(length)) if is_upload else ""
        return (429, reason) if reason else (0, "")


def _is_upload(scope: Scope) -> bool:
    return bool(scope["path"].rstrip("/").endswith("/upload"))
