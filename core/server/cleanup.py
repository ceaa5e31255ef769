"""Cleanup: stop idle runs and delete old ones, never a run that is in use."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from core.runs import RunFolder
from core.server.limits import MEGABYTE
from core.server.live import LiveRun
from core.server.registry import Runs
from core.storage.errors import LabError

SECONDS_BETWEEN = 20.0
_log = logging.getLogger(__name__)


class Cleanup:
    """Enforces the limits on idle time, training time, age and disk space.

    A run is in use while it trains or is queued, and while its owner has the page open. Runs that are shared, shipped
    with the program, or without an owner (started from the command line, and deleted there) are never deleted.

    Args:
        seconds_away: returns how many seconds ago an owner was last active.
    """

    def __init__(self, runs: Runs, seconds_away: Callable[[str | None], float]) -> None:
        self._runs, self._limits, self._seconds_away = runs, runs.limits, seconds_away
        self._ended = threading.Event()

    def start(self) -> None:
        """Call ``run_once`` every ``SECONDS_BETWEEN`` seconds in a background thread, until ``close``."""
        threading.Thread(target=self._repeat, name="cleanup", daemon=True).start()

    def close(self) -> None:
        """Stop the background thread."""
        self._ended.set()

    def run_once(self) -> None:
        """Stop and delete all runs that exceed a limit now."""
        for live in self._runs.active():
            reason = self._reason_to_stop(live)
            if reason and not live.stop.is_set():
                self._attempt(partial(self._runs.stop, live.folder.name, reason=reason))
        for name in self._to_delete():
            _log.info("deleting: too old, or the disk limit is exceeded", extra={"run": name})
            self._attempt(partial(self._runs.delete, name))

    def _repeat(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN):
            self._attempt(self.run_once)

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except LabError as error:  # the run ended or was deleted in the meantime
            _log.info("cleanup skipped a run: %s", error)
        except Exception:  # noqa: BLE001 - cleanup is retried, and the server continues
            _log.exception("cleanup failed")

    def _reason_to_stop(self, live: LiveRun) -> str:
        limits = self._limits
        if limits.idle_minutes is not None and self._seconds_away(live.owner) > 60 * limits.idle_minutes:
            return f"stopped after {limits.idle_minutes} minutes without a visit; press Resume to continue"
        seconds = 0.0 if live.started_at is None else time.monotonic() - live.started_at
        if limits.max_minutes is not None and seconds > 60 * limits.max_minutes:
            return f"stopped after {limits.max_minutes} minutes, the limit for training without a break"
        return ""

    def _to_delete(self) -> list[str]:
        """Return the runs that are too old, and then the oldest ones until the disk limit is met."""
        max_mb, hours = self._limits.max_disk_mb, self._limits.keep_hours
        if max_mb is None and hours is None:
            return []
        deletable = sorted((self._last_changed(name), name) for name in self._runs.names() if self._may_delete(name))
        old = [name for at, name in deletable if hours is not None and time.time() - at > 3600 * hours]
        if max_mb is None:
            return old
        sizes = {name: RunFolder(self._runs.root, name).size() for name in self._runs.names()}
        over = sum(sizes.values()) - sum(sizes[name] for name in old) - max_mb * MEGABYTE
        for _, name in deletable:
            if over <= 0:
                break
            if name not in old:
                old.append(name)
                over -= sizes[name]
        return old

    def _may_delete(self, name: str) -> bool:
        ownership = self._runs.ownership(name)
        in_use = any(live.folder.name == name for live in self._runs.active())
        is_present = self._seconds_away(ownership.owner) < 60.0
        is_kept = ownership.owner is None or ownership.shared or self._runs.info(name).shipped
        return not (in_use or is_present or is_kept)

    def _last_changed(self, name: str) -> float:
        try:
            return (RunFolder(self._runs.root, name).path / "run.json").stat().st_mtime
        except FileNotFoundError:
            return 0.0
