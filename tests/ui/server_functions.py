"""Calls the server functions of the page's components as a browser does."""

from typing import Any

import gradio as gr


def call(component: gr.HTML, name: str, argument: Any) -> dict[str, Any]:
    """Call a component's server function with any JSON value."""
    (function,) = [each for each in component.server_fns if each.__name__ == name]
    return function(argument)
