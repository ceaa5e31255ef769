"""Gradio sessions (one per open tab or API client) with a small memory footprint."""

from copy import copy
from datetime import datetime, timedelta
from typing import Any

from gradio.blocks import Blocks
from gradio.state_holder import SessionState, StateHolder

MAX_SESSIONS = 2_000  # each holds its visitor's current decode; the least recently used are dropped first
UNUSED = timedelta(hours=12)  # a page that is open uses its session every minute; a computer may sleep over lunch


class LightSession(SessionState):
    """A session without a deep copy of the page's configuration: 0.4 MB, needed only for deep links."""

    def __init__(self, blocks: Blocks) -> None:  # replaces the base class's, which makes the copy
        self.blocks_config = copy(blocks.default_config)
        self.config_values: dict[int, Any] = {}  # filled with what changes
        self.state_data: dict[int, Any] = {}
        self._state_ttl: dict[int, Any] = {}
        self.is_closed = False
        self.STATE_TTL_WHEN_CLOSED = 3600


class LightSessions(StateHolder):
    """The sessions of a page."""

    def __getitem__(self, session_id: str) -> SessionState:
        """Return a session, and create it if necessary."""
        if session_id not in self.session_data:
            self.session_data[session_id] = LightSession(self.blocks)
        return super().__getitem__(session_id)

    def forget(self, session_id: str) -> None:
        """Drop a session, if there is one."""
        with self.lock:
            self.session_data.pop(session_id, None)
            self.time_last_used.pop(session_id, None)

    def delete_all_expired_state(self) -> None:
        """Drop the sessions of closed pages; Gradio calls this every second."""
        now = datetime.now()
        with self.lock:
            while self.session_data:
                oldest = next(iter(self.session_data))  # the least recently used
                if now - self.time_last_used.get(oldest, now) < UNUSED:
                    return
                del self.session_data[oldest], self.time_last_used[oldest]


def use_light_sessions(page: Blocks) -> None:
    """Replace the sessions of a page; call it directly after ``launch``."""
    sessions = LightSessions()
    page.state_session_capacity = MAX_SESSIONS
    sessions.set_blocks(page)
    page.app.state_holder = sessions
