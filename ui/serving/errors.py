"""Show what a person asked for wrongly; let every other error surface as the bug it is."""

import functools
import html
from collections.abc import Callable
from typing import Any

import gradio as gr

from core.storage.errors import LabError


def in_words(error: LabError | str) -> str:
    """Return a message for Gradio, which shows messages as HTML: a stranger's markup stays text."""
    return html.escape(str(error), quote=False)


def show_errors(function: Callable) -> Callable:
    """Turn a ``LabError`` into the message Gradio shows on the page and hands to API clients."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LabError as error:
            raise gr.Error(in_words(error), print_exception=False) from error

    return call
