"""Updates by name: an event handler returns the values of the components that change, and leaves the others out.

A handler need not know the page's components, and a test reads ``updates["message"]`` instead of the third value.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

Updates = dict[str, Any]


def by_name(handler: Callable[..., Updates], outputs: Mapping[str, Component]) -> Callable[..., dict[Component, Any]]:
    """Return the handler as Gradio calls it: each named value goes to the component of that name.

    Args:
        handler: a function or a partial. Gradio passes event data and requests to annotated parameters only, and finds
            none on a partial.
        outputs: the components by name, all of them outputs of the event.
    """

    def listener(*inputs: Any) -> dict[Component, Any]:
        return _addressed(handler(*inputs), outputs)

    return functools.update_wrapper(listener, handler) if inspect.isfunction(handler) else listener


def each_by_name(
    handler: Callable[..., Iterator[Updates]], outputs: Mapping[str, Component]
) -> Callable[..., Iterator[dict[Component, Any]]]:
    """Return a handler that yields updates as Gradio calls it; see ``by_name``."""

    def listener(*inputs: Any) -> Iterator[dict[Component, Any]]:
        for updates in handler(*inputs):
            yield _addressed(updates, outputs)

    return listener


def _addressed(updates: Updates, outputs: Mapping[str, Component]) -> dict[Any, Any]:
    """Return the value of each component; Gradio takes an empty dictionary for a value, not for no updates."""
    return {outputs[name]: value for name, value in updates.items()} or gr.skip()
