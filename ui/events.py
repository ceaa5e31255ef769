"""Options that the page's event listeners share; pass them as ``button.click(…, **QUIET)``."""

from typing import Any

import gradio as gr

from core.storage.errors import InputError
from core.text.validation import validate_text

MAX_EVENT_TEXT = 10_000  # characters

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
"""Not listed in the API, which has its own endpoints, and without Gradio's progress overlay, which would hide the
previous result during every update. With nothing to show it on, either: otherwise Gradio gives each change of an
event's state to every component that any event has answered to, a third of the wait for an answer to an input.
"""

LATEST: dict[str, Any] = {"trigger_mode": "always_last"}
"""While a call is running, only the latest of the following events is kept: intermediate values of a slider or a text
need no answer, and would delay the last one's. Without it, Gradio drops what is pressed meanwhile, also in a ``then``.
Not for a handler that reads event data: Gradio repeats the call with the new inputs, but with the first event's data.
"""

PRESSED: dict[str, Any] = {"trigger_mode": "multiple", "concurrency_limit": 1}
"""Each of several quick events is handled, one after the other: for quick handlers that read event data."""

CHANGE: dict[str, Any] = {"concurrency_id": "interventions", "concurrency_limit": 1}
"""For handlers that change the interventions: each changes what the one before it left."""

CPU: dict[str, Any] = {"concurrency_id": "cpu", "concurrency_limit": 2}
"""For handlers that compute for a second or more: at most two of them run together, see also ``FairQueue``."""

CHECK: dict[str, Any] = {"concurrency_id": "check", "concurrency_limit": 2}
"""For handlers that check what is typed, and estimate how long it trains: they do not wait behind the others."""


def event_text(event: gr.EventData, name: str) -> str:
    """Return a text that a script sent with an event; InputError if a client sent something else."""
    return validate_text(name, _sent(event, name), max_length=MAX_EVENT_TEXT)


def event_number(event: gr.EventData, name: str) -> int:
    """Return a whole number that a script sent with an event; InputError if a client sent something else."""
    value = _sent(event, name)
    if type(value) is not int:
        raise InputError(f"{name} must be a whole number, not {type(value).__name__}")
    return value


def _sent(event: gr.EventData, name: str) -> Any:
    if not isinstance(event._data, dict) or name not in event._data:
        raise InputError(f"{name} is missing: the page sends it with its event")
    return event._data[name]
