"""A measurement on a tab: two buttons start and cancel it, and its progress is shown where its result will be."""

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from core.storage.errors import LabError
from ui.components.notice import problem
from ui.serving.cancellation import Cancellation
from ui.updates import Updates

UPDATE_INTERVAL = 0.2  # seconds between progress updates


def cancellable(cancellation: Cancellation, results: Iterator[dict[str, Any]]) -> Iterator[Updates]:
    """Yield the updates of the ticket, the message, the result and the buttons while a measurement runs.

    Args:
        results: values of the component that shows the result: some with "progress", then the result itself.
    """
    ticket, updated = cancellation.ticket(), 0.0
    try:
        for value in results:
            if cancellation.is_cancelled(ticket):
                yield done({"text": "Cancelled."})
                return
            if "progress" not in value:
                yield done({"text": ""}, value)
            elif time.monotonic() - updated > UPDATE_INTERVAL:
                updated = time.monotonic()
                yield {"ticket": ticket, "message": {"text": ""}, "result": value} | _buttons(working=True)
    except LabError as error:
        yield done(problem(error))


def done(message: dict[str, Any], result: dict[str, Any] | None = None) -> Updates:
    """Return the updates after the measurement."""
    return {"ticket": None, "message": message, "result": result} | _buttons(working=False)


def _buttons(*, working: bool) -> Updates:
    return {"start": gr.update(interactive=not working), "cancel": gr.update(interactive=working)}
