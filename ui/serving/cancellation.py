"""Cooperative cancellation of handlers that yield progress.

Gradio can cancel an event itself, but then marks all of its outputs as failed.
"""

import secrets
from collections import deque

MAX_CANCELLED = 1_000  # tickets


class Cancellation:
    """Tickets of running handlers and which of them were cancelled.

    A handler yields its ticket to the visitor's session with its first output; the Cancel button sends it back.
    """

    def __init__(self) -> None:
        self._cancelled: deque[str] = deque(maxlen=MAX_CANCELLED)

    def ticket(self) -> str:
        """Return a new unguessable ticket."""
        return secrets.token_hex(8)

    def cancel(self, ticket: str | None) -> None:
        """Cancel the handler with this ticket; no effect after it has ended."""
        if ticket:
            self._cancelled.append(ticket)

    def is_cancelled(self, ticket: str) -> bool:
        """Return whether the handler with this ticket should stop."""
        return ticket in self._cancelled
