"""Serves the page's scripts, styles and pictures, under an address that changes with their content."""

import gzip
import hashlib
import mimetypes
import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

UI = Path(__file__).resolve().parents[1]
STYLES = "lab.css"
LATER_STYLES = "later.css"
_FOLDERS = ("components", "web")
_SUFFIXES = {".js", ".css", ".svg", ".png"}
_FOREVER = "public, max-age=31536000, immutable"  # a changed file has another address
_FIRST = (
    "run_bar",
    "page_address",
    "preset_picker",
    "setting_fields",
    "preset_summary",
    "notice",
    "bench",
)  # components that the page opens with
_LATER_SHEETS = {  # of what the first tab, or no tab, opens later
    *("run_menu.css", "health.css"),
    *("heat_table.css", "lights.css", "print.css", "ribbon.css", "series_chart.css", "thumbnails.css", "tour.css"),
}
_STATIC = (  # the lab's and Gradio's files: the same for all visitors
    *("/lab/", "/assets/", "/static/", "/svelte/", "/gradio_api/custom_component/"),
    *("/theme.css", "/gradio_api/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json", "/pwa_icon"),
)
_IMPORT = re.compile(r'^(?:import|export) [^;]*?from "(\.[^"]+)";', re.MULTILINE)
_UPLOT = "web/vendor/uPlot.iife.min.js"  # as its authors published it; defines the global variable uPlot
_UPLOT_MODULE = "web/vendor/uPlot.js"
# uPlot's numbers are English, as all of the page's: a browser's language may be no tag, such as C, which Intl refuses.
_BROWSERS_LANGUAGE, _ENGLISH = b'_?k.language:"en-US"', b'"en-US"'


@dataclass(frozen=True)
class Asset:
    """One file as it is served, plain and compressed."""

    content: bytes
    gzipped: bytes
    media_type: str


def asset_address(path: str) -> str:
    """Return the address of a file below ``ui/``, such as ``web/page.js``, relative to the page's."""
    return f"lab/{_version()}/{path}"


def head() -> str:
    """Return the elements that Gradio adds to the page's ``<head>`` after its theme, which the style sheet changes."""
    return (
        f'<link rel="stylesheet" href="{asset_address(STYLES)}">'
        f'<script type="module" src="{asset_address("web/page.js")}"></script>'
    )


def early_head() -> str:
    """Return the elements of the ``<head>`` that are in the page's HTML: icon, description, picture, later scripts."""
    return (
        f'<link rel="icon" type="image/svg+xml" href="{asset_address("web/images/icon.svg")}">'
        '<meta name="description" content="Train a small seq2seq model and watch its attention being learned.">'
        '<meta property="og:title" content="Attention Lab">'
        '<meta property="og:description" content="Train a small seq2seq model and watch its attention being learned.">'
        f'<meta property="og:image" content="{asset_address("web/images/social.png")}">'
        '<meta name="twitter:card" content="summary_large_image">'
        f'<meta name="later-scripts" content="{" ".join(map(asset_address, later_scripts()))}">'
    )


def is_static(path: str) -> bool:
    """Return whether an address is that of a file which is the same for all visitors, and which caches may keep."""
    return path.startswith(_STATIC)


def opens_first(component: str) -> bool:
    """Return whether the page opens with a component: it is on the first tab, in no fold, or above the tabs."""
    return component in _FIRST


@cache
def first_scripts() -> list[str]:
    """Return the scripts of the components that the page opens with, and what they import; other tabs load later."""
    found: list[str] = []
    waiting = ["web/page.js", *(f"components/{name}/{name}.js" for name in _FIRST)]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        folder = PurePosixPath(path).parent
        imports = _IMPORT.findall(assets()[path].content.decode())
        waiting += [posixpath.normpath(folder / each) for each in imports]
    return sorted(found)


def later_scripts() -> list[str]:
    """Return all other scripts, which ``web/page.js`` loads once the page is open."""
    return [path for path in assets() if path.endswith(".js") and path not in first_scripts()]


def asset_route() -> Route:
    """Return the route that serves the files."""
    return Route("/lab/{version}/{path:path}", _serve)


async def _serve(request: Request) -> Response:
    asset = assets().get(request.path_params["path"])
    if asset is None:
        return Response("There is no such file.", status_code=404, media_type="text/plain")
    return response(asset, request, is_current=request.path_params["version"] == _version())


def response(asset: Asset, request: Request, *, is_current: bool) -> Response:
    """Return a file as a browser asked for it; it keeps what has the current address."""
    headers = {"cache-control": _FOREVER if is_current else "no-cache", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.gzipped, media_type=asset.media_type, headers=headers | {"content-encoding": "gzip"})
    return Response(asset.content, media_type=asset.media_type, headers=headers)


@cache
def assets() -> dict[str, Asset]:
    """Return all files that are served, by their path below ``ui/``.

    Style sheets are joined: to ``STYLES``, or to ``LATER_STYLES`` if they are of what is opened later.
    """
    files = [path for folder in _FOLDERS for path in sorted((UI / folder).rglob("*")) if path.suffix in _SUFFIXES]
    served = {path.relative_to(UI).as_posix(): path.read_bytes() for path in files if path.suffix != ".css"}
    served[_UPLOT_MODULE] = served.pop(_UPLOT).replace(_BROWSERS_LANGUAGE, _ENGLISH) + b"export default uPlot;\n"
    sheets = [path for path in files if path.suffix == ".css"]
    first = [
        path for path in sheets if path.name not in _LATER_SHEETS and path.parent.name in ("web", "vendor", *_FIRST)
    ]
    served[STYLES] = _joined_styles(first).encode()
    served[LATER_STYLES] = _joined_styles([path for path in sheets if path not in first]).encode()
    return {path: packed(path, _short(path, content)) for path, content in served.items()}


def packed(path: str, content: bytes) -> Asset:
    """Return a file with its compressed content and its type."""
    return Asset(content, gzip.compress(content, mtime=0), mimetypes.guess_type(path)[0] or "application/octet-stream")


def _short(path: str, content: bytes) -> bytes:
    return without_comments(content.decode()).encode() if path.endswith(".js") else content


def without_comments(script: str) -> str:
    """Remove a script's indentation, empty lines and whole-line comments, which are a third of its bytes.

    Texts that span several lines would change; the scripts have none, which a test checks.
    """
    lines = (
        line.strip() for line in re.sub(r"^\s*/\*\*.*?\*/$", "", script, flags=re.MULTILINE | re.DOTALL).splitlines()
    )
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def _joined_styles(files: list[Path]) -> str:
    """Join the style sheets: those of ``ui/web`` are for the whole page, a component's only for its element."""
    page = [path.read_text(encoding="utf-8") for path in files if path.is_relative_to(UI / "web")]
    own = [
        f".lab-{path.parent.name} {{\n{path.read_text(encoding='utf-8')}}}\n"
        for path in files
        if not path.is_relative_to(UI / "web")
    ]
    return without_spaces("".join(page + own))


def without_spaces(style: str) -> str:
    """Remove a style sheet's comments and line breaks, and all but one space in a row."""
    return (
        re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL))
        .replace(" { ", "{")
        .replace("; }", "}")
        .replace("; ", ";")
    )


@cache
def _version() -> str:
    content = b"".join(path.encode() + asset.content for path, asset in assets().items())
    return hashlib.sha256(content).hexdigest()[:12]
