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
from core.storage.validation_errors import first_problem
from ui.serving.assets import asset_address, opens_first
from ui.serving.errors import in_words
from ui.serving.guarded_page import message_for

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


class SearchRequest(Request):
    """A request for the list of runs; see ``core.server.run_list.find_runs``."""

    search: str = Field(default="", max_length=200)


class MetricsRequest(RunRequest):
    """A request for the metrics of one run that the browser does not have yet; see ``History.chart``."""

    since_step: int = Field(default=-1, ge=-1)
    step_width: int = Field(default=0, ge=0)
    since_evaluation: int = Field(default=-1, ge=-1)
    evaluation_width: int = Field(default=0, ge=0)

    @property
    def held(self) -> dict[str, int]:
        """What the browser has."""
        return self.model_dump(include=set(MetricsRequest.model_fields) - {"run"})


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
    events: Sequence[str] = (),
    server_functions: Mapping[str, ServerFunction] | None = None,
    **props: Any,
) -> gr.HTML:
    """Build the component in ``ui/components/<name>/`` from ``<name>.html``, ``<name>.css`` and ``<name>.js``.

    The script is a module with a function ``mount({ element, trigger, props, server, watch })``.

    Args:
        name: the folder's name.
        elem_id: the element's id on the page.
        value: the initial value; each component documents its keys.
        events: names of the events that the script triggers; each becomes a method to listen with.
        server_functions: functions that the script calls with ``callServer(server, key, argument)``. A failed call
            returns ``{"error": message}``.
        props: further values, which the script reads as ``props.<key>``.
    """
    return gr.HTML(
        value,
        html_template=(FOLDER / name / f"{name}.html").read_text(encoding="utf-8"),
        js_on_load=_loader(name, events),
        server_functions=[_callable_from_browser(key, function) for key, function in (server_functions or {}).items()],
        apply_default_css=False,
        elem_id=elem_id,
        elem_classes=["lab-component", f"lab-{name}"],
        **props,
    )


def _loader(name: str, events: Sequence[str]) -> str:
    """Return the script that loads a component's module; Gradio finds the names of its events by their quotes."""
    needed = [asset_address(f"components/{name}/{name}.js")]
    if not opens_first(name):
        needed.append(asset_address("web/later_styles.js"))
    imports = ", ".join(f'import(new URL("{address}", document.baseURI).href)' for address in needed)
    return f"""/* {" ".join(f"'{event}'" for event in events)} */
Promise.all([{imports}])
  .then(async ([module, styles]) => {{
    await styles?.laterStyles();
    return module;
  }})
  .then((module) => {{
    const content = element.firstElementChild;
    if (content?.isMounted) return; // a busy page may run this twice
    if (content) content.isMounted = true;
    module.mount({{ element, trigger, props, server, watch, upload }});
  }})
  .catch((error) => {{
    console.error(error);
    element.textContent = "This part of the page could not be loaded. Reload the page.";
  }});"""


def _callable_from_browser(name: str, function: ServerFunction) -> ServerFunction:
    """Name a server function as the script calls it, and turn exceptions into ``{"error": message}``."""

    def call(argument: Any) -> dict[str, Any]:
        try:
            return function(argument)
        except ValidationError as error:
            return {"error": f"invalid request: {first_problem(error)}"}
        except LabError as error:
            return {"error": in_words(error)}
        except Exception as error:  # noqa: BLE001 - called with arbitrary JSON
            _log.exception("server function failed", extra={"function": name})
            return {"error": message_for(error)}

    call.__name__ = name
    return call
