"""Changes to the HTML of Gradio's page that let it open sooner.

Gradio's page learns which scripts and styles it needs from scripts that it has to load first, four times in a row. Here
its HTML names all of them, so that they arrive together.
"""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import gradio
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.serving.assets import early_head, first_scripts_and_styles

_ASSETS = Path(gradio.__file__).with_name("templates") / "frontend/assets"
_CONFIG = re.compile(r"(window\.gradio_config = )(\{.*?\})(;\s*</script>)", re.DOTALL)
_BASE = re.compile(r'<base href="[^"]*" />')
_BLOCKS_IMPORT = re.compile(r'"\./Blocks-[\w-]+\.js".*?"\./Login-')
_LISTED = re.compile(r"\w+\.f=(\[[^\]]*\])")  # in each script: the files that its imports need
_COMPONENT = r"[{,]%s:\{[^{}]*?component:\(\)=>\w+\(\(\)=>import\(`\./([\w-]+\.js)`\)[^\[]*\(\[([\d,]*)\]"


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
    types: set[str] = set()

    def config_for_browsers(found: re.Match[str]) -> str:
        config = json.loads(found[2])
        remove_endpoints(config)
        types.update(first_types(config))
        return found[1] + json.dumps(config, separators=(",", ":")).replace("<", "\\u003c") + found[3]

    page = _CONFIG.sub(config_for_browsers, page, count=1)
    files = [*gradio_scripts(), *component_files(types), *first_scripts_and_styles()]
    return _BASE.sub(lambda found: found[0] + _preloads(dict.fromkeys(files)) + early_head(), page, count=1)


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


@cache
def gradio_scripts() -> list[str]:
    """Return the scripts that Gradio's page loads one after the other before it builds its components.

    The names change with Gradio's version; the script that imports ``Blocks`` lists them.
    """
    for path in sorted(_ASSETS.glob("Index-*.js")):
        with path.open(encoding="utf-8") as file:
            listed = _BLOCKS_IMPORT.search(file.read(4_000))
        if listed:
            return [f"./assets/{name}" for name in (path.name, *re.findall(r"[\w-]+\.js", listed[0]))]
    return []


def component_files(types: Iterable[str]) -> list[str]:
    """Return the scripts and styles of Gradio's components of some types; see ``gradio_scripts``."""
    core = next(iter(sorted(_ASSETS.glob("core-*.js"))), None)
    script = core.read_text(encoding="utf-8") if core else ""
    listed = _LISTED.search(script)
    names = [Path(each).name for each in json.loads(listed[1])] if listed else []
    files: list[str] = []
    for kind in sorted(types):
        for name, needed in re.findall(_COMPONENT % re.escape(kind), script):
            files += [name, *(names[int(index)] for index in needed.split(",") if index)]
    return [f"./assets/{name}" for name in dict.fromkeys(files)]


def _preloads(addresses: Iterable[str]) -> str:
    return "".join(map(_preload, addresses))


def _preload(address: str) -> str:
    if not address.endswith(".css"):
        return f'<link rel="modulepreload" href="{address}">'
    mode = " crossorigin" if address.startswith("./assets/") else ""  # as Gradio loads its own
    return f'<link rel="preload" as="style" href="{address}"{mode}>'
