"""The scripts and styles of Gradio's page: which it opens with, and how they are served.

Gradio compresses them for every request and does not say how long to keep them. Their names change with their content,
so that browsers keep them, and they are compressed once.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import gradio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ui.serving.assets import Asset, packed, response

_FOLDER = Path(gradio.__file__).with_name("templates") / "frontend/assets"
_BLOCKS_IMPORT = re.compile(r'"\./Blocks-[\w-]+\.js".*?"\./Login-')
_LISTED = re.compile(r"\w+\.f=(\[[^\]]*\])")  # in each script: the files that its imports need
_COMPONENT = r"[{,]%s:\{[^{}]*?component:\(\)=>\w+\(\(\)=>import\(`\./([\w-]+\.js)`\)[^\[]*\(\[([\d,]*)\]"
_URL = re.compile(r"url\((?!data:|[\"']?/)")  # of a font beside the style sheet
_joined: dict[str, bytes] = {}  # style sheets by the name that they are served under


def file_route() -> Route:
    """Return the route that serves the files."""
    return Route("/assets/{name}", _serve)


async def _serve(request: Request) -> Response:
    asset = _asset(request.path_params["name"])
    if asset is None:
        return Response("There is no such file.", status_code=404, media_type="text/plain")
    return response(asset, request, is_current=True)


@cache
def _names() -> frozenset[str]:
    return frozenset(path.name for path in _FOLDER.iterdir() if path.is_file())


def _asset(name: str) -> Asset | None:
    if name in _joined:
        return _packed(name)
    return _packed(name) if name in _names() else None


@cache
def _packed(name: str) -> Asset:
    return packed(name, _joined[name] if name in _joined else (_FOLDER / name).read_bytes())


def style_address(addresses: Sequence[str]) -> str:
    """Return the address of one style sheet with the content of several."""
    content = b"\n".join((_FOLDER / Path(each).name).read_bytes() for each in addresses)
    name = f"first-{hashlib.sha256(content).hexdigest()[:12]}.css"
    _joined[name] = content
    return f"./assets/{name}"


@cache
def opening_scripts() -> list[str]:
    """Return the scripts that Gradio's page loads one after the other before it builds its components.

    The names change with Gradio's version; the script that imports ``Blocks`` lists them.
    """
    for path in sorted(_FOLDER.glob("Index-*.js")):
        with path.open(encoding="utf-8") as file:
            listed = _BLOCKS_IMPORT.search(file.read(4_000))
        if listed:
            return [f"./assets/{name}" for name in (path.name, *re.findall(r"[\w-]+\.js", listed[0]))]
    return []


def component_files(types: Iterable[str]) -> list[str]:
    """Return the scripts and styles of Gradio's components of some types."""
    core = next(iter(sorted(_FOLDER.glob("core-*.js"))), None)
    script = core.read_text(encoding="utf-8") if core else ""
    listed = _LISTED.search(script)
    names = [Path(each).name for each in json.loads(listed[1])] if listed else []
    files: list[str] = []
    for kind in sorted(types):
        for name, needed in re.findall(_COMPONENT % re.escape(kind), script):
            files += [name, *(names[int(index)] for index in needed.split(",") if index)]
    return [f"./assets/{name}" for name in dict.fromkeys(files)]
