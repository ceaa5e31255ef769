"""Breaking off work that a handler does in parts.

Gradio can cancel an event itself, but then shows everything that the event was to set as failed.
"""

import secrets
from collections import deque

REMEMBERED = 1_000


class Cancelling:
    """Tickets of work in progress, and which of it a visitor wants no more.

    A ticket goes to the visitor's session with the first part of the work, and comes back with the press of Cancel.
    """

    def __init__(self) -> None:
        self._cancelled: deque[str] = deque(maxlen=REMEMBERED)

    def ticket(self) -> str:
        """Return a new ticket, which nobody can guess."""
        return secrets.token_hex(8)

    def cancel(self, ticket: str | None) -> None:
        """Note that the work of a ticket is not wanted any more; nothing happens if it has ended."""
        if ticket:
            self._cancelled.append(ticket)

    def is_cancelled(self, ticket: str) -> bool:
        """Tell whether to break off."""
        return ticket in self._cancelled
