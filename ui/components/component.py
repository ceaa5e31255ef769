"""The factory of the page's components: ``gr.HTML`` with the template, style and script from the component's folder.

Templates are static. A value reaches the browser as JSON and the script shows it as text; nothing is interpolated,
because tokens and run names come from visitors.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.storage.errors import LabError
from ui.serving.guarded_page import message_for
from ui.web import WEB

FOLDER = Path(__file__).parent
_log = logging.getLogger(__name__)

ServerFunction = Callable[[Any], dict[str, Any]]
"""Called by a component's script with one JSON value; returns a JSON object. Anyone can call it with anything."""


class Request(BaseModel):
    """Base class of the arguments of server functions: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class RunRequest(Request):
    """A request about one run."""

    run: str = Field(max_length=100)


R = TypeVar("R", bound=Request)


def validated(request: type[R], function: Callable[[R], dict[str, Any]]) -> ServerFunction:
    """Return a server function that validates its argument and calls ``function`` with it."""

    def call(argument: Any) -> dict[str, Any]:
        return function(request.model_validate(argument))

    return call


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
        server_functions: functions that the script calls as ``server.<key>(argument)``. A failed call returns
            ``{"error": message}``.
        scripts: files loaded before ``<name>.js``, from the component's folder or from ``ui/web/``.
        styles: files loaded before ``<name>.css``, from the same places.
        props: further values, which the script reads as ``props.<key>``.
    """
    colors = f"const COLORS = {_read(name, 'colors.json').strip()};\n"
    return gr.HTML(
        value,
        html_template=_read(name, f"{name}.html"),
        css_template="".join(_read(name, file) for file in ("shared.css", *styles, f"{name}.css")),
        js_on_load=colors + "\n".join(_read(name, file) for file in ("shared.js", *scripts, f"{name}.js")),
        server_functions=[_callable_from_browser(key, function) for key, function in (server_functions or {}).items()],
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes="lab-component",
        **props,
    )


def _callable_from_browser(name: str, function: ServerFunction) -> ServerFunction:
    """Name a server function as the script calls it, and turn exceptions into ``{"error": message}``."""

    def call(argument: Any) -> dict[str, Any]:
        try:
            return function(argument)
        except ValidationError as error:
            return {"error": f"invalid request: {error.errors()[0]['msg']}"}
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
