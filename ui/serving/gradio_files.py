"""The scripts and styles of Gradio's page: which it opens with, and how they are served.

Gradio compresses them for every request and does not say how long to keep them. Their names change with their content,
so that browsers keep them, and they are compressed once.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path

import gradio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ui.serving.assets import Asset, packed, response

_FOLDER = Path(gradio.__file__).with_name("templates") / "frontend/assets"
_IN_PAGE = re.compile(r'="\./assets/(index-[\w-]+\.(?:js|css))"')
_LISTED = re.compile(r"\w+\.f=(\[[^\]]*\])")  # in each script: the files that its imports need
_COMPONENT = r"[{,]%s:\{[^{}]*?component:\(\)=>\w+\(\(\)=>import\(`\./([\w-]+\.js)`\)[^\[]*\(\[([\d,]*)\]"
# What shows that an event is running counts its seconds in every frame until the event has ended. That of the opening
# page is removed before, and would count forever, with a seventh of a core of every visitor.
_COUNTING = re.compile(rb"(performance\.now\(\)-\w+\(\w+\)\)/1e3\),\w+&&)(\w+\(\))")
_ELEMENT = re.compile(rb"(\w+)&&\w+\(\)&&\(\w+\.status===`pending`\|\|")  # which shows it; null once it is removed
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
    return packed(name, _joined[name] if name in _joined else _mended((_FOLDER / name).read_bytes()))


def _mended(content: bytes) -> bytes:
    """Return a file of Gradio's, with an end to the count of seconds of what is no longer on the page."""
    element = _ELEMENT.search(content)
    return _COUNTING.sub(rb"\1%s&&\2" % element[1], content) if element else content


def style_address(addresses: Sequence[str]) -> str:
    """Return the address of one style sheet with the content of several."""
    content = b"\n".join((_FOLDER / Path(each).name).read_bytes() for each in addresses)
    name = f"first-{hashlib.sha256(content).hexdigest()[:12]}.css"
    _joined[name] = content
    return f"./assets/{name}"


@cache
def files_in_page() -> list[str]:
    """Return the script and the style sheet that Gradio's HTML names."""
    page = (_FOLDER.parent / "index.html").read_text(encoding="utf-8")
    return [f"./assets/{name}" for name in _IN_PAGE.findall(page)]


@cache
def opening_files() -> list[str]:
    """Return the scripts and styles that Gradio's page loads one after the other before it builds its components."""
    script = next((each for each in files_in_page() if each.endswith(".js")), "")
    first = _files_listed_in(script)
    second = list(takewhile(lambda each: "/Login-" not in each, _files_listed_in(first[0]) if first else []))
    in_page = files_in_page()
    return [each for each in dict.fromkeys([script, *first, *second]) if each and each not in in_page[1:]]


def _files_listed_in(address: str) -> list[str]:
    """Return the files that the imports of one of Gradio's scripts need."""
    path = _FOLDER / Path(address).name
    listed = _LISTED.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return [f"./assets/{Path(each).name}" for each in json.loads(listed[1])] if listed else []


def component_files(types: Iterable[str]) -> list[str]:
    """Return the further scripts and styles that Gradio's components of some types need."""
    core = next((each for each in opening_files() if "/core-" in each), "")
    listed = _files_listed_in(core)
    script = (_FOLDER / Path(core).name).read_text(encoding="utf-8") if core else ""
    files: list[str] = []
    for kind in sorted(types):
        for name, needed in re.findall(_COMPONENT % re.escape(kind), script):
            files += [f"./assets/{name}", *(listed[int(index)] for index in needed.split(",") if index)]
    known = {*files_in_page(), *opening_files()}
    return [each for each in dict.fromkeys(files) if each not in known]
