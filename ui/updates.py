"""Updates by name: an event handler returns the values of the components that change, and leaves the others out.

A handler need not know the page's components, and a test reads ``updates["message"]`` instead of the third value.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

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
        return {outputs[name]: value for name, value in handler(*inputs).items()}

    return functools.update_wrapper(listener, handler) if inspect.isfunction(handler) else listener
