"""Makes the page's components: each is a ``gr.HTML`` with the template, style and script from its own folder.

Templates are static. A value reaches the browser as data, and the script shows it as text; nothing is interpolated,
because tokens and run names come from visitors.
"""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from core.storage.errors import LabError
from ui.serving.guarded_page import message_for
from ui.web import WEB

FOLDER = Path(__file__).parent
_log = logging.getLogger(__name__)

ServerFunction = Callable[[dict[str, Any]], dict[str, Any]]
"""Called from the browser with one JSON object; returns one. Public, so it must validate its argument."""


def component(
    name: str,
    *,
    elem_id: str,
    value: dict[str, Any] | None = None,
    server_functions: Mapping[str, ServerFunction] | None = None,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    **props: Any,
) -> gr.HTML:
    """Build the component in ``ui/components/<name>/`` from ``<name>.html``, ``<name>.css`` and ``<name>.js``.

    Args:
        name: the folder's name.
        elem_id: the element's id on the page.
        value: the initial value; each component documents its keys.
        server_functions: functions that the script calls as ``server.<key>(…)``.
        scripts: files loaded before ``<name>.js``, from the component's folder or from ``ui/web/``.
        styles: files loaded before ``<name>.css``, from the same places.
        props: further values that the script reads as ``props.<key>``.
    """
    colors = f"const COLORS = {_read(name, 'colors.json').strip()};\n"
    return gr.HTML(
        value,
        html_template=_read(name, f"{name}.html"),
        css_template="".join(_read(name, file) for file in ("shared.css", *styles, f"{name}.css")),
        js_on_load=colors + "\n".join(_read(name, file) for file in ("shared.js", *scripts, f"{name}.js")),
        server_functions=[_callable_from_browser(function, key) for key, function in (server_functions or {}).items()],
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes="lab-component",
        **props,
    )


def _callable_from_browser(function: ServerFunction, name: str) -> ServerFunction:
    """Name a server function as the script calls it, and return ``{"error": message}`` when it raises."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return function(*args, **kwargs)
        except LabError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - called with arbitrary JSON
            _log.exception("server function failed", extra={"function": name})
            return {"error": message_for(error)}

    call.__name__ = name
    return call


def _read(name: str, file: str) -> str:
    own = FOLDER / name / file
    return (own if own.exists() else WEB / file).read_text(encoding="utf-8")
