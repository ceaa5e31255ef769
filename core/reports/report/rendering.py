"""Render a report as Markdown with image files, and as one self-contained HTML page."""

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
    """Render the report's Markdown template."""
    # The output is Markdown: the filter `plain` escapes untrusted text, HTML escaping would not.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701
    )
    environment.filters |= {"plain": plain, "table": table}
    return environment.get_template("report.md.jinja").render(context)


def as_html(markdown: str, *, title: str, figures: dict[str, bytes]) -> str:
    """Convert Markdown to an HTML page with its PNG images (by name) embedded; HTML in the Markdown is escaped."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer: Any = parser.renderer  # its type does not declare ``rules``
    renderer.rules |= {
        "table_open": lambda *_: '<div class="table"><table>\n',
        "table_close": lambda *_: "</table></div>\n",
    }
    tokens = parser.parse(markdown)
    for image in _images(tokens):
        image.attrSet("src", "data:image/png;base64," + base64.b64encode(figures[str(image.attrGet("src"))]).decode())
    body = renderer.render(tokens, parser.options, {})
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True)
    style = (_HERE / "report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.jinja").render(title=title, body=body, style=style)


def plain(text: str) -> str:
    """Escape untrusted text for Markdown, on one line."""
    escaped = re.sub(r"([\\`*_\[\]<|&~])", r"\\\1", re.sub(r"[ \t\r\n]+", " ", text.strip()))
    # Characters that start a list, a quotation or a heading:
    return re.sub(r"^(\d*)([.)](?=\s|$)|(?<!\d)[-+=>#])", r"\1\\\2", escaped)


def table(rows: list[list[str]]) -> str:
    """Format rows as a Markdown table; the first row holds the column names."""
    lines = [f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]])


def _images(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        if token.type == "image":
            yield token
        yield from _images(token.children or [])
