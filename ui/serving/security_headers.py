"""Middleware that tells browsers what the page may load, who may frame it, and what they may keep."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.serving.assets import is_static

# Gradio's page has its configuration in inline scripts, compiles the scripts of components and sets styles on elements
_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "media-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "worker-src": "'self' blob:",
    "connect-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}
_SPACES = " https://huggingface.co"  # where Gradio's page asks whether its Space is awake


def content_security_policy(*, on_space: bool, may_be_framed: bool) -> str:
    """Return the policy: the page loads nothing from other machines, and nothing it loads can send to them."""
    policy = dict(_POLICY)
    if on_space:
        policy["connect-src"] += _SPACES
    if not may_be_framed:
        policy["frame-ancestors"] = "'none'"
    return "; ".join(f"{directive} {sources}" for directive, sources in policy.items())


class SecurityHeaders:
    """Middleware that adds the headers to every response, and forbids keeping what is not static.

    Args:
        may_be_framed: whether other sites may show the page in a frame, where it has visitors of its own: their
            cookies are not those of the page outside of the frame.
    """

    def __init__(self, app: ASGIApp, *, on_space: bool, may_be_framed: bool) -> None:
        self.app = app
        self._headers = {
            "content-security-policy": content_security_policy(on_space=on_space, may_be_framed=may_be_framed),
            "referrer-policy": "same-origin",  # the page's address has the run's name
            "x-content-type-options": "nosniff",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                if not is_static(scope["path"]):
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        await self.app(scope, receive, send_with_headers)
