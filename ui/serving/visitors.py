"""Who asks: a visitor is known by a random cookie, which their browser keeps and no script can read."""

import re
import secrets
import threading
import time
from collections import Counter, OrderedDict
from http.cookies import CookieError, SimpleCookie

from gradio.context import LocalContext
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.server.access import Visitor
from core.server.ownership import owner_of

COOKIE = "attention-lab-visitor"
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")  # what ``secrets.token_urlsafe(TOKEN_BYTES)`` gives
_SECONDS_KEPT = 400 * 24 * 3600  # the longest that browsers keep a cookie
_SCOPE = "attention_lab.visitor"
MOST_SEEN = 10_000
NOBODY = Visitor(owner=None, returning=False)


def current_visitor() -> Visitor:
    """Return who asks for what Gradio does in this thread now; nobody where nobody asks."""
    request = LocalContext.request.get(None)
    request = getattr(request, "request", request)  # Gradio wraps the request of an event, not that of a component
    return NOBODY if request is None else visitor_of(request.scope)


def visitor_of(scope: Scope) -> Visitor:
    """Return who sent a request."""
    return scope.get(_SCOPE, NOBODY)


class Sessions:
    """Whose each of Gradio's sessions is: one tab, which holds what its visitor looks at."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def admits(self, session: str | None, visitor: Visitor) -> bool:
        """Tell whether a session is for a visitor; who first uses one has it, if they can be told from others."""
        if not session:
            return True
        with self._lock:
            if session in self._owners:
                return self._owners[session] == visitor.owner
            if visitor.returning and visitor.owner is not None:
                self._owners[session] = visitor.owner
                while len(self._owners) > MOST_SEEN:
                    self._owners.popitem(last=False)
        return True


SESSIONS = Sessions()


class Presence:
    """When visitors were last here; who has the page open holds a connection, which counts for as long as it lasts."""

    def __init__(self) -> None:
        self._connections: Counter[str] = Counter()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def came(self, owner: str) -> None:
        """Note that a request of a visitor began."""
        with self._lock:
            if len(self._seen) >= MOST_SEEN and owner not in self._seen:
                self._forget_some()
            self._connections[owner] += 1
            self._seen[owner] = time.monotonic()

    def left(self, owner: str) -> None:
        """Note that a request of a visitor ended."""
        with self._lock:
            self._connections[owner] -= 1
            if not self._connections[owner]:
                del self._connections[owner]
            self._seen[owner] = time.monotonic()

    def seconds_away(self, owner: str | None) -> float:
        """Return for how long a visitor has not been here; at most for as long as the server runs."""
        with self._lock:
            if owner in self._connections:
                return 0.0
            return time.monotonic() - self._seen.get(owner, self._began)

    def _forget_some(self) -> None:
        """Forget who was here longest ago, so that the list does not grow for ever."""
        gone = sorted((at, owner) for owner, at in self._seen.items() if owner not in self._connections)
        for _, owner in gone[: MOST_SEEN // 2]:
            del self._seen[owner]


class Visitors:
    """Middleware that finds out who asks, gives those who are new a cookie, and turns foreign pages away."""

    def __init__(self, app: ASGIApp, presence: Presence) -> None:
        self.app, self.presence = app, presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and headers.get("sec-fetch-site") == "cross-site":
            await PlainTextResponse("This page answers to itself only.", status_code=403)(scope, receive, send)
            return
        known = _token_in(headers)
        token = known or secrets.token_urlsafe(TOKEN_BYTES)
        scope[_SCOPE] = visitor = Visitor(owner_of(token), returning=known is not None)
        session = QueryParams(scope["query_string"]).get("session_hash")
        if not SESSIONS.admits(session, visitor):
            await PlainTextResponse("This is not your session.", status_code=403)(scope, receive, send)
            return
        give = known is None or scope["path"] == "/"  # anew with every visit, so that it is kept from then on

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and give:
                MutableHeaders(scope=message).append("set-cookie", _cookie(token, secure=_is_secure(scope, headers)))
            await send(message)

        if not visitor.returning:
            await self.app(scope, receive, send_with_cookie)
            return
        self.presence.came(visitor.owner)
        try:
            await self.app(scope, receive, send_with_cookie)
        finally:
            self.presence.left(visitor.owner)


def _token_in(headers: Headers) -> str | None:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return cookie.value if cookie and _TOKEN.fullmatch(cookie.value) else None


def _is_secure(scope: Scope, headers: Headers) -> bool:
    return headers.get("x-forwarded-proto", scope["scheme"]).split(",")[0].strip() == "https"


def _cookie(token: str, *, secure: bool) -> str:
    """Write the cookie; over https it is also kept where the page is shown inside another one, as on Spaces."""
    where = "SameSite=None; Secure; Partitioned" if secure else "SameSite=Lax"
    return f"{COOKIE}={token}; Path=/; Max-Age={_SECONDS_KEPT}; HttpOnly; {where}"
