"""The notice: one line of text, for a status or an error."""

from typing import Any

import gradio as gr

from core.storage.errors import UnavailableError
from ui.components.component import component
from ui.serving.errors import in_words

NO_RUN = {"text": "No run is chosen. Choose one in the bar, or train one on the Train tab."}


def notice(*, value: dict[str, Any] | None = None, elem_id: str) -> gr.HTML:
    """Build the component. Value: ``{"text": message}``, with ``"problem": True`` for an error."""
    return component("notice", elem_id=elem_id, value=value)


def problem(message: object) -> dict[str, Any]:
    """Return an error message as the component's value; one about what a run does not have is no error, but gray."""
    if isinstance(message, UnavailableError):
        return {"text": in_words(message)}
    return {"text": in_words(str(message)), "problem": True}
