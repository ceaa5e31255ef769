"""Write a run as one HTML file: its charts, its replay, and its model to decode with, without a server or a network."""

import base64
import gzip
import html
import json
import posixpath
import re
from pathlib import Path, PurePosixPath

from core.runs import RunFolder
from core.storage.atomic import write_atomically
from core.storage.errors import InputError
from ui.site.build import HERE, data_files, page_files
from ui.site.graph_files import cache_folder
from ui.site.labs import run_lab

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob: 'wasm-unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; connect-src blob: data:; base-uri 'none'; form-action 'none'"
)
_IMPORT = re.compile(r'(?:^(?:import|export) [^;]*?from |^import |\bimport\()"(\.[^"]+)"', re.MULTILINE)
_STYLES = ("lab.css", "later.css", "site/site.css")
_FIRST, _FUNCTIONS = "site/site.js", "site/functions.js"


def export_html(folder: RunFolder, path: Path, *, cache: Path | None = None) -> None:
    """Write a run's best weights and its history as a page that opens with a double-click.

    Args:
        path: a new file.
        cache: see ``ui.site.build.build_site``; None for the user's.

    Raises:
        InputError: the file exists already, it cannot be written, or the model has no graph.
        RunError: there is no such run, or it has no weights.
        LabError: a package is missing, or ONNX Runtime cannot be fetched.
    """
    if path.exists():
        raise InputError(f"--out={str(path)[:200]} exists already")
    cache = cache or cache_folder()
    lab = run_lab(folder, cache)
    title = lab.record["title"] if lab.record else folder.name
    files = data_files({folder.name: lab}, presets=(), runs=(folder.name,), cache=cache)
    pages = page_files(cache)
    try:
        write_atomically(path, _page(pages, files, title).encode())
    except OSError as error:
        raise InputError(f"--out={str(path)[:200]} cannot be written: {error.strerror or error}") from error


def _page(pages: dict[str, bytes], files: dict[str, bytes], title: str) -> str:
    page = pages["index.html"].decode()
    heading = html.escape(f"{title}: a run of Attention Lab")
    page = re.sub(r"(<(title|h1)\b[^>]*>).*?(</\2>)", lambda found: f"{found[1]}{heading}{found[3]}", page)
    page = re.sub(r'<meta name="description"[^>]*>\n', "", page)  # of what the site is for
    page = re.sub(r'(http-equiv="Content-Security-Policy" content=")[^"]*', rf"\g<1>{_POLICY}", page)
    page = re.sub(r'<link rel="(?:stylesheet|icon)"[^>]*>\n', "", page)
    page = re.sub(r'<script type="module"[^>]*></script>\n', "", page)
    page = re.sub(r'<button [^>]*id="open-lessons"[^>]*>Learn</button>', "", page)  # there are none
    about = (HERE / "about_one_file.html").read_text(encoding="utf-8")
    page = re.sub(r"<!-- about -->.*<!-- end of about -->\n", lambda _: about, page, flags=re.DOTALL)
    styles = "\n".join(pages[name].decode() for name in _STYLES)
    embedded = {name: base64.b64encode(gzip.compress(content, mtime=0)).decode() for name, content in files.items()}
    scripts = {name: pages[name].decode() for name in _in_order(pages)}
    parts = [
        f"<style>{styles}</style>",
        _json_element("scripts", scripts),
        _json_element("files", embedded),
        f"<script>{(HERE / 'scripts/one_file.js').read_text(encoding='utf-8')}</script>",
    ]
    return page.replace('class="gradio-container site"', 'class="gradio-container site single"').replace(
        "</body>", "\n".join(parts) + "\n</body>"
    )


def _json_element(name: str, value: dict[str, str]) -> str:
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")  # no text ends the element
    return f'<script type="application/json" id="{name}">{text}</script>'


def _in_order(pages: dict[str, bytes]) -> list[str]:
    """Return the scripts that the page needs, each after those that it imports."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        for imported in _IMPORT.findall(pages[name].decode()):
            target = posixpath.normpath(PurePosixPath(name).parent / imported)
            if target not in found:
                add(target)
        found.setdefault(name)

    mounted = re.findall(r'mountComponent\("(\w+)"', pages[_FIRST].decode())
    for name in (
        _FIRST,
        _FUNCTIONS,
        *(f"components/{each}/{each}.js" for each in mounted),
        "components/answer_comparison/answer_comparison.js",
    ):
        add(name)
    return list(found)
