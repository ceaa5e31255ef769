"""Messages for users' errors: a ``LabError`` becomes a Gradio message, other exceptions stay visible as bugs."""

import functools
import html
import re
from collections.abc import Callable
from typing import Any

import gradio as gr

from core.runs.names import readable_name
from core.storage.error_messages import bounded
from core.storage.errors import LabError

_RUN = re.compile("(^)?run='([^']*)'")


def in_words(error: LabError | str) -> str:
    """Return a message for a visitor of the page, who knows runs by their names rather than as ``run='NAME'``."""
    return _RUN.sub(lambda found: f"{'T' if found[1] == '' else 't'}he run “{readable_name(found[2])}”", str(error))


def escaped(error: LabError | str) -> str:
    """Return a message for Gradio, which renders messages as HTML; markup in it stays text."""
    return html.escape(bounded(str(error)), quote=False)


def show_errors(function: Callable) -> Callable:
    """Turn a ``LabError`` into the error that Gradio shows on the page and returns to API clients."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LabError as error:
            raise gr.Error(escaped(error), print_exception=False) from error

    return call
