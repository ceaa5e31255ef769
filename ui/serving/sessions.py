"""Gradio's sessions, one for each open tab or program, in little memory: none is forgotten before there are many."""

from copy import copy
from typing import Any

from gradio.blocks import Blocks
from gradio.state_holder import SessionState, StateHolder

MOST_SESSIONS = 2_000  # each holds what its visitor looks at; those that were used longest ago go first


class LightSession(SessionState):
    """A session without a copy of the whole page's configuration: 0.4 MB, for links of a kind that is not used here."""

    def __init__(self, blocks: Blocks) -> None:  # in place of, not after, what the base class does
        self.blocks_config = copy(blocks.default_config)
        self.config_values: dict[int, Any] = {}  # filled by what changes
        self.state_data: dict[int, Any] = {}
        self._state_ttl: dict[int, Any] = {}
        self.is_closed = False
        self.STATE_TTL_WHEN_CLOSED = 3600


class LightSessions(StateHolder):
    """All sessions of a page."""

    def __getitem__(self, session_id: str) -> SessionState:
        """Return a session, a new one if there is none."""
        if session_id not in self.session_data:
            self.session_data[session_id] = LightSession(self.blocks)
        return super().__getitem__(session_id)


def keep_sessions_light(page: Blocks) -> None:
    """Give a page that has just been launched its sessions."""
    sessions = LightSessions()
    page.state_session_capacity = MOST_SESSIONS
    sessions.set_blocks(page)
    page.app.state_holder = sessions
