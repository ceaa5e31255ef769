"""Markdown with pictures beside it, and the same as one HTML page that needs nothing else."""

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markdown_it.token import Token

_HERE = Path(__file__).parent


def as_markdown(context: dict[str, Any]) -> str:
    """Fill the report's template."""
    # What is written is Markdown, in which `plain` and not HTML's escaping keeps a stranger's text harmless.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701
    )
    environment.filters |= {"plain": plain, "table": table}
    return environment.get_template("report.md.jinja").render(context)


def as_html(markdown: str, *, title: str, pictures: dict[str, bytes]) -> str:
    """Turn Markdown into a page of HTML with its PNG pictures (by name) in it; HTML in the Markdown stays text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.renderer.rules |= {
        "table_open": lambda *_: '<div class="table"><table>\n',
        "table_close": lambda *_: "</table></div>\n",
    }
    tokens = parser.parse(markdown)
    for image in _images(tokens):
        image.attrSet("src", "data:image/png;base64," + base64.b64encode(pictures[image.attrGet("src")]).decode())
    body = parser.renderer.render(tokens, parser.options, {})
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True)
    style = (_HERE / "report.css").read_text()
    return environment.get_template("report.html.jinja").render(title=title, body=body, style=style)


def plain(text: str) -> str:
    """Escape text for Markdown, on one line, so that a stranger's text stays what it is."""
    escaped = re.sub(r"([\\`*_\[\]<|&~])", r"\\\1", re.sub(r"[ \t\r\n]+", " ", text.strip()))
    # What a list, a quotation or a heading begins with:
    return re.sub(r"^(\d*)([.)](?=\s|$)|(?<!\d)[-+=>#])", r"\1\\\2", escaped)


def table(rows: list[list[str]]) -> str:
    """Write rows as a Markdown table; the first are the names of the columns."""
    lines = [f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]])


def _images(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        if token.type == "image":
            yield token
        yield from _images(token.children or [])
