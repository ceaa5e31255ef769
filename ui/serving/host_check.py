"""Middleware that answers only under the server's own names, and only its own pages and programs.

Two attacks are refused. A foreign page sends requests to the lab that its reader has open: the browser names the page
in the Origin header. And a foreign page's own name is pointed at this machine (DNS rebinding), which makes it the lab's
origin: then the Host header has that name.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from core.storage.error_messages import short_repr
from core.storage.errors import InputError

_NAME = r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+"
_HOST = re.compile(rf"({_NAME})(?::(\d{{1,5}}))?")
_ORIGIN = re.compile(rf"(https?)://({_NAME})(?::(\d{{1,5}}))?")
_PORTS = {"http": "80", "https": "443"}
_READING = ("GET", "HEAD", "OPTIONS")
_POLICY_VIOLATION = 1008  # code that closes a WebSocket


@dataclass(frozen=True)
class HostRules:
    """The host names that the server answers under.

    Attributes:
        names: lower case, without a final dot; None for every name. Addresses and ``localhost`` are always answered:
            nobody else can make them mean this machine.
        origins: addresses of the page behind a proxy that need not pass on the Host header, such as
            ``https://user-lab.hf.space``.
        on_space: whether it runs on a Space.
    """

    names: frozenset[str] | None = frozenset()
    origins: frozenset[str] = frozenset()
    on_space: bool = False

    @property
    def is_local(self) -> bool:
        """Whether it answers under addresses and ``localhost`` only, and so is not meant to be behind a proxy."""
        return self.names is not None and not self.origins and all(_is_own_name(name) for name in self.names)

    def refusal(self, headers: Headers, *, method: str) -> str:
        """Return why a request is refused, or ""."""
        hosts = headers.getlist("host")
        host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if self.names is not None and (host is None or not self._is_answered(_normal(host[1]))):
            name = _normal(host[1])[:253] if host else ""
            hint = f" If this is its name, start it with: python app.py --allowed-host {name}" if name else ""
            return f"This server does not answer under the host name {_shown(','.join(hosts))}.{hint}"
        for origin in headers.getlist("origin"):
            if not self._is_own(origin, host):
                return (
                    f"This request was sent by a page of {_shown(origin)}, but only the lab's own pages may send any. "
                    f"Its own host is {_shown(','.join(hosts))}; a proxy must pass on the browser's Host header."
                )
        if method not in _READING and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return "Cross-site requests are not allowed."
        return ""

    def _is_answered(self, name: str) -> bool:
        return _is_own_name(name) or name in (self.names or ())

    def _is_own(self, origin: str, host: re.Match[str] | None) -> bool:
        """Whether an origin is that of the server's own pages: the same name and port as in the Host header."""
        match = _ORIGIN.fullmatch(origin)
        if match is None:  # such as null, of a page in a sandbox
            return False
        if _normal_origin(match) in self.origins:
            return True
        scheme, name, port = match[1], _normal(match[2]), match[3] or _PORTS[match[1]]
        return host is not None and (name, port) == (_normal(host[1]), host[2] or _PORTS[scheme])


def host_rules(
    names: Iterable[str] = (), *, bound: str | None = None, public: bool, environment: Mapping[str, str]
) -> HostRules:
    """Return the rules of a server.

    Args:
        names: allowed besides the addresses and names of this machine. One with a scheme, such as ``https://lab.org``,
            is the address of a proxy, which need not pass on the Host header.
        bound: name or address that the server listens on.
        public: whether the server is for strangers: it then answers under every name unless ``names`` has some.
        environment: ``SPACE_HOST`` has the names of a Space, separated by commas.

    Raises:
        InputError: a name is neither a host name or an address, nor one of these with a scheme.
    """
    spaces = [_normal(each) for each in environment.get("SPACE_HOST", "").split(",") if each.strip()]
    allowed, origins = set(), {f"https://{name}" for name in spaces}
    for name in names:
        if origin := _ORIGIN.fullmatch(name.rstrip("/")):
            origins.add(_normal_origin(origin))
        elif not (re.fullmatch(_NAME, name) or _is_address(name)):
            raise InputError(
                f"allowed_host={short_repr(name)} must be a name or an address without a port, or the whole address "
                "of a proxy, such as https://lab.example.org"
            )
        allowed.add(_normal(origin[2] if origin else name))
    if public and not allowed:
        return HostRules(None, frozenset(origins), bool(spaces))
    allowed |= {_normal(each) for each in (bound, *spaces) if each}
    return HostRules(frozenset(allowed), frozenset(origins), bool(spaces))


class HostCheck:
    """Middleware that applies the rules to every request, also to WebSockets, whatever its path."""

    def __init__(self, app: ASGIApp, rules: HostRules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if reason := self.rules.refusal(Headers(scope=scope), method=scope.get("method", "GET")):
            is_page = scope["type"] == "http"
            answer = PlainTextResponse(reason, status_code=403) if is_page else WebSocketClose(_POLICY_VIOLATION)
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)


def is_own_computer(server_name: str | None) -> bool:
    """Return whether a server with this name is reached from its own computer only.

    Args:
        server_name: as for ``gr.Blocks.launch``; None is what Gradio chooses.
    """
    return (server_name or os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")) in ("localhost", "127.0.0.1", "::1")


def _normal(name: str) -> str:
    return name.strip().lower().removesuffix(".").strip("[]")


def _normal_origin(origin: re.Match[str]) -> str:
    port = origin[3] if origin[3] not in (None, _PORTS[origin[1]]) else ""
    return f"{origin[1]}://{_normal(origin[2])}{port and ':'}{port}"


def _is_own_name(name: str) -> bool:
    """Whether nobody else can make this name mean this machine."""
    return name == "localhost" or name.endswith(".localhost") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _shown(value: str) -> str:
    return repr(value if len(value) <= 100 else f"{value[:97]}...")
