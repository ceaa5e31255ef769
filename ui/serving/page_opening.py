"""Changes to the HTML of Gradio's page that let it open sooner.

Gradio's page learns which scripts and styles it needs from scripts that it has to load first, four times in a row. Here
its HTML names all of them, so that they arrive together, the styles as one file.
"""

import json
import re
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.serving.assets import asset_address, early_head, first_scripts
from ui.serving.gradio_files import component_files, opening_files, style_address

_CONFIG = re.compile(r"(window\.gradio_config = )(\{.*?\})(;\s*</script>)", re.DOTALL)
_BASE = re.compile(r'<base href="[^"]*" />')
_LINKED = re.compile(r'<link rel="stylesheet" href="([^"]+)">')


class PageOpening:
    """Middleware that changes the page's HTML."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and change the response if it is the page."""
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            await self.app(scope, receive, send)
            return
        start: Message = {}
        parts: list[bytes] = []

        async def send_changed(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            body, headers = b"".join(parts), MutableHeaders(raw=start["headers"])
            if start["status"] == 200 and "content-encoding" not in headers:
                body = quick_page(body.decode()).encode()
                headers["content-length"] = str(len(body))
            await send(start)
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, send_changed)


def quick_page(page: str) -> str:
    """Return the page's HTML with all files that it opens with in its head, and with only what a browser reads."""
    opening, config = opening_files(), {"head": "", "theme_hash": ""}
    early = _joined(opening)
    files = [each for each in opening if each.endswith(".js")]

    def config_for_browsers(found: re.Match[str]) -> str:
        config.update(json.loads(found[2]))
        remove_endpoints(config)
        needed = component_files(first_types(config))
        files.extend(each for each in needed if each.endswith(".js"))
        config["head"] += _joined(needed)
        return found[1] + json.dumps(config, separators=(",", ":")).replace("<", "\\u003c") + found[3]

    page = _CONFIG.sub(config_for_browsers, page, count=1)
    styles = [f"./theme.css?v={config['theme_hash']}", *_LINKED.findall(config["head"])]
    preloads = "".join(map(_preload, [*styles, *files, *map(asset_address, first_scripts())]))
    page = page.replace("</head>", f"{early}</head>", 1)  # after Gradio's first style sheet
    return _BASE.sub(lambda found: found[0] + preloads + early_head(), page, count=1)


def _joined(addresses: list[str]) -> str:
    """Return a link to one style sheet with the content of several, and what makes Gradio take them for loaded."""
    styles = [each for each in addresses if each.endswith(".css")]
    loaded = "".join(f'<link rel="stylesheet" href="{each}" disabled>' for each in styles)  # these load nothing
    return f'<link rel="stylesheet" href="{style_address(styles)}">{loaded}' if styles else ""


def _preload(address: str) -> str:
    kind = 'preload" as="style' if ".css" in address else "modulepreload"
    return f'<link rel="{kind}" href="{address}">'


def remove_endpoints(config: dict[str, Any]) -> None:
    """Remove the components that stand for the inputs of API endpoints: a browser would mount each of them."""
    removed = {each["id"] for each in config["components"] if each["type"] == "api"}

    def remove_from(node: dict[str, Any]) -> None:
        node["children"] = [each for each in node.get("children", []) if each["id"] not in removed]
        for child in node["children"]:
            remove_from(child)

    config["components"] = [each for each in config["components"] if each["id"] not in removed]
    remove_from(config["layout"])
    for page in config["page"].values():
        page["components"] = [each for each in page["components"] if each not in removed]
        remove_from(page["layout"])


def first_types(config: dict[str, Any]) -> set[str]:
    """Return the types of the components that the page opens with: those above the tabs and on the selected tab."""
    components = {each["id"]: each for each in config["components"]}
    types: set[str] = set()

    def add(node: dict[str, Any], selected: Any = None) -> None:
        component = components.get(node["id"], {"type": "column", "props": {}})
        props = component["props"]
        types.add(component["type"])
        is_hidden = props.get("visible") is False or (component["type"] == "tabitem" and props.get("id") != selected)
        if not is_hidden:
            for child in node.get("children", []):
                add(child, props.get("selected"))

    add(config["layout"])
    return types
