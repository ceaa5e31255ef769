"""The page as it is sent is made once, not for everybody who comes: it is the same for all who ask at one address."""

import gzip
from collections import OrderedDict
from dataclasses import dataclass

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATHS = ("/", "/config")  # 0.9 MB each, which Gradio would copy and write as JSON every time
ADDRESS = ("host", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-gradio-server")
SELECTED_BY = {"all_endpoints", "deep_link", "page"}  # arguments by which Gradio would send another page
MOST_KEPT = 8


@dataclass(frozen=True)
class _Kept:
    plain: bytes
    packed: bytes
    media_type: str


class KeptPage:
    """Middleware that keeps the page and its configuration, also packed, which makes them a sixth of the size."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()  # used by the event loop alone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or not _is_kept(scope):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        asked_at = (scope["path"], scope["scheme"], scope.get("root_path", ""))
        address = (*asked_at, *(headers.get(each, "") for each in ADDRESS))
        if address in self._kept:
            self._kept.move_to_end(address)
            await _answer(self._kept[address], headers)(scope, receive, send)
        else:
            await self.app(scope, receive, self._keeping(address, send))

    def _keeping(self, address: tuple[str, ...], send: Send) -> Send:
        """Pass an answer on, and keep it if it is a good one."""
        start: Message = {}
        parts: list[bytes] = []

        async def send_keeping(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))
            await send(message)
            if start["status"] == 200 and message["type"] == "http.response.body" and not message.get("more_body"):
                self._keep(address, b"".join(parts), Headers(raw=start["headers"])["content-type"])

        return send_keeping

    def _keep(self, address: tuple[str, ...], plain: bytes, media_type: str) -> None:
        self._kept[address] = _Kept(plain, gzip.compress(plain, compresslevel=6), media_type)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def _is_kept(scope: Scope) -> bool:
    asked = set(QueryParams(scope["query_string"]))
    return scope["method"] == "GET" and scope["path"] in PATHS and not asked & SELECTED_BY


def _answer(kept: _Kept, headers: Headers) -> Response:
    is_packed = "gzip" in headers.get("accept-encoding", "")
    said = {"vary": "accept-encoding"} | ({"content-encoding": "gzip"} if is_packed else {})
    return Response(kept.packed if is_packed else kept.plain, media_type=kept.media_type, headers=said)
