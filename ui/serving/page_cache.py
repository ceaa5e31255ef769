"""A cache of the page and its configuration, which are the same for all visitors of one address."""

import gzip
from collections import OrderedDict
from dataclasses import dataclass

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATHS = ("/", "/config")  # 0.9 MB each, which Gradio copies and serializes for every request
KEY_HEADERS = ("host", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-gradio-server")
UNCACHED_QUERIES = {"all_endpoints", "deep_link", "page"}  # parameters that change Gradio's response
MAX_CACHED = 8  # responses


@dataclass(frozen=True)
class _Cached:
    plain: bytes
    gzipped: bytes
    media_type: str


class PageCache:
    """Middleware that caches the page and its configuration, plain and compressed to a sixth of the size."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._cache: OrderedDict[tuple[str, ...], _Cached] = OrderedDict()  # used by the event loop only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request from the cache, or pass it on."""
        if scope["type"] != "http" or not _is_cacheable(scope):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        target = (scope["path"], scope["scheme"], scope.get("root_path", ""))
        key = (*target, *(headers.get(each, "") for each in KEY_HEADERS))
        if key in self._cache:
            self._cache.move_to_end(key)
            await _response(self._cache[key], headers)(scope, receive, send)
        else:
            await self.app(scope, receive, self._storing(key, send))

    def _storing(self, key: tuple[str, ...], send: Send) -> Send:
        """Return a ``send`` that passes a response on and stores it if its status is 200."""
        start: Message = {}
        parts: list[bytes] = []

        async def send_and_store(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))
            await send(message)
            if start["status"] == 200 and message["type"] == "http.response.body" and not message.get("more_body"):
                self._store(key, b"".join(parts), Headers(raw=start["headers"])["content-type"])

        return send_and_store

    def _store(self, key: tuple[str, ...], plain: bytes, media_type: str) -> None:
        self._cache[key] = _Cached(plain, gzip.compress(plain, compresslevel=6), media_type)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)


def _is_cacheable(scope: Scope) -> bool:
    query = set(QueryParams(scope["query_string"]))
    return scope["method"] == "GET" and scope["path"] in PATHS and not query & UNCACHED_QUERIES


def _response(cached: _Cached, headers: Headers) -> Response:
    is_gzipped = "gzip" in headers.get("accept-encoding", "")
    encoding = {"vary": "accept-encoding"} | ({"content-encoding": "gzip"} if is_gzipped else {})
    content = cached.gzipped if is_gzipped else cached.plain
    return Response(content, media_type=cached.media_type, headers=encoding)
