"""Middleware that identifies visitors by cookie, protects their sessions, and tracks who is connected."""

import math
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
from ui.serving.assets import is_static
from ui.serving.client_address import network_of

COOKIE = "attention-lab-visitor"
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")  # the format of ``secrets.token_urlsafe(TOKEN_BYTES)``
_COOKIE_SECONDS = 400 * 24 * 3600  # the maximum that browsers allow
_SCOPE = "attention_lab.visitor"
MAX_VISITORS = 10_000
SECONDS_OF_USE = 10.0  # after a request, for which its network counts as using the page
NOBODY = Visitor(owner=None, returning=False)
OTHERS_SESSION = "This session belongs to another visitor. Reload the page."


def current_visitor() -> Visitor:
    """Return the visitor whose request Gradio is handling in this context; ``NOBODY`` outside of requests."""
    request = LocalContext.request.get(None)
    request = getattr(request, "request", request)  # in an event, Gradio's request wraps Starlette's
    return NOBODY if request is None else visitor_of(request.scope)


def visitor_of(scope: Scope) -> Visitor:
    """Return the visitor who sent a request."""
    return scope.get(_SCOPE, NOBODY)


class Sessions:
    """The owner of each Gradio session, so that visitors cannot use each other's sessions."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def claim(self, session: str | None, visitor: Visitor) -> bool:
        """Return whether a visitor may use a session. The first returning visitor to use it becomes its owner.

        A visitor without a cookie cannot own a session: each of its requests gets a new token, so the next request
        would be refused as another visitor's.
        """
        if not session:
            return True
        with self._lock:
            if session in self._owners:
                if self._owners[session] != visitor.owner:
                    return False
                self._owners.move_to_end(session)
                return True
            if visitor.returning and visitor.owner is not None:
                self._owners[session] = visitor.owner
                while len(self._owners) > MAX_VISITORS:
                    self._owners.popitem(last=False)
        return True


SESSIONS = Sessions()


class Presence:
    """Tracks which visitors are connected, and when each other visitor was last connected.

    An open page sends a request every half minute, a hidden one at least every minute: see ``ui/web/still_open.js``.
    """

    def __init__(self) -> None:
        self._connections: Counter[str] = Counter()
        self._first_seen: dict[str, float] = {}
        self._last_seen: dict[str, float] = {}
        self._network: dict[str, str] = {}
        # The last request, and the last one from another network than that: (network, time)
        self._latest, self._latest_elsewhere = ("", -math.inf), ("", -math.inf)
        self._lock = threading.Lock()
        self._known_since = time.monotonic()  # who is unknown may have been here before

    def connected(self, owner: str, network: str = "") -> None:
        """Record the start of a visitor's request, and the network that it comes from."""
        with self._lock:
            if len(self._last_seen) >= MAX_VISITORS and owner not in self._last_seen:
                self._forget_briefest()
            self._connections[owner] += 1
            self._network[owner] = network
            self._last_seen[owner] = time.monotonic()
            if network != self._latest[0]:
                self._latest_elsewhere = self._latest
            self._latest = network, self._last_seen[owner]
            self._first_seen.setdefault(owner, self._last_seen[owner])

    def disconnected(self, owner: str) -> None:
        """Record the end of a visitor's request."""
        with self._lock:
            self._connections[owner] -= 1
            if not self._connections[owner]:
                del self._connections[owner]
            self._last_seen[owner] = time.monotonic()

    def seconds_away(self, owner: str | None) -> float:
        """Return the seconds since a visitor was last connected, at most since any visitor was forgotten."""
        with self._lock:
            if owner in self._connections:
                return 0.0
            last_seen = self._last_seen.get(owner or "", self._known_since)
            return time.monotonic() - last_seen

    def is_elsewhere(self, network: str) -> bool:
        """Whether a request has come from another network within ``SECONDS_OF_USE``."""
        with self._lock:
            at = self._latest[1] if self._latest[0] != network else self._latest_elsewhere[1]
        return time.monotonic() - at < SECONDS_OF_USE

    def _forget_briefest(self) -> None:
        """Forget half of the visitors, which bounds the memory: first those of the networks with the most.

        A program that invents cookies has many visitors in one network, or each of them stays for one request; within
        a network, those who stayed for the shortest time are forgotten first. Nobody who is forgotten counts as having
        left before now: their runs train on for the time that an absence may take.
        """
        by_network: dict[str, list[tuple[float, float, str]]] = {}
        for owner, at in self._last_seen.items():
            if owner not in self._connections:
                stay = at - self._first_seen[owner], at, owner
                by_network.setdefault(self._network[owner], []).append(stay)
        ranked = [
            (len(stays) - position, stay)  # the n-th longest stay of a network is forgotten with the n-th of others
            for stays in by_network.values()
            for position, stay in enumerate(sorted(stays))
        ]
        for _, (*_, owner) in sorted(ranked, key=lambda each: (-each[0], each[1]))[: MAX_VISITORS // 2]:
            del self._last_seen[owner], self._first_seen[owner], self._network[owner]
        self._known_since = time.monotonic()


class VisitorCookies:
    """Middleware that identifies visitors and sets their cookies."""

    def __init__(self, app: ASGIApp, presence: Presence) -> None:
        self.app, self.presence = app, presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Identify the visitor and pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        known = _token(headers)
        token = known or secrets.token_urlsafe(TOKEN_BYTES)
        scope[_SCOPE] = visitor = Visitor(owner_of(token), known is not None, network_of(scope))
        session = QueryParams(scope["query_string"]).get("session_hash")
        if not SESSIONS.claim(session, visitor):
            await PlainTextResponse(OTHERS_SESSION, status_code=403)(scope, receive, send)
            return
        is_new = known is None and not is_static(scope["path"])  # a cache would give one visitor's cookie to others
        set_cookie = is_new or scope["path"] == "/"  # each load of the page renews the cookie

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and set_cookie:
                MutableHeaders(scope=message).append("set-cookie", _cookie(token, secure=_is_secure(scope)))
            await send(message)

        if not visitor.returning or visitor.owner is None:
            await self.app(scope, receive, send_with_cookie)
            return
        self.presence.connected(visitor.owner, visitor.network)
        try:
            await self.app(scope, receive, send_with_cookie)
        finally:
            self.presence.disconnected(visitor.owner)


def _token(headers: Headers) -> str | None:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return cookie.value if cookie and _TOKEN.fullmatch(cookie.value) else None


def _is_secure(scope: Scope) -> bool:
    """Whether the browser uses HTTPS. uvicorn believes ``X-Forwarded-Proto`` of a trusted proxy only."""
    return bool(scope["scheme"] == "https")


def _cookie(token: str, *, secure: bool) -> str:
    """Return the value of the Set-Cookie header.

    Over HTTPS, the cookie also works in an iframe, as on Hugging Face Spaces.
    """
    policy = "SameSite=None; Secure; Partitioned" if secure else "SameSite=Lax"
    return f"{COOKIE}={token}; Path=/; Max-Age={_COOKIE_SECONDS}; HttpOnly; {policy}"
