"""Options that the page's event listeners share; pass them as ``button.click(…, **QUIET)``."""

from typing import Any

QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
"""Not listed in the API, which has its own endpoints, and without Gradio's progress overlay, which would hide the
previous result during every update."""

LATEST: dict[str, Any] = {"trigger_mode": "always_last"}
"""While a call is running, only the latest of the following events is kept: intermediate values of a slider or a text
need no answer, and would delay the last one's."""

CPU: dict[str, Any] = {"concurrency_id": "cpu", "concurrency_limit": 2}
"""For handlers that compute for a second or more: at most two of them run together."""
