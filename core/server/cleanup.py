"""Cleanup: stop idle runs and delete old ones, never a run that is in use."""

import logging
import threading
from collections.abc import Callable
from functools import partial

from core.server.limits import MEGABYTE
from core.server.live import LiveRun
from core.server.registry import Runs
from core.server.steady_time import steady_time
from core.storage.errors import LabError

SECONDS_BETWEEN = 20.0
PRESENT_SECONDS = 150.0  # since the last request of an open page: browsers let a hidden one send one a minute
_log = logging.getLogger(__name__)


class Cleanup:
    """Enforces the limits on idle time, training time, age and disk space.

    A run is in use while it trains or is queued, and while its owner has the page open. Runs that are shipped with the
    program or without an owner (started from the command line, and deleted there) are never deleted. Shared ones are
    deleted when nobody has opened them for long, and where all together exceed half of the disk limit: what some share
    takes no space from what others have for themselves.

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
        """Stop and delete all runs that exceed a limit now, and end classes that nobody visits."""
        self._attempt(self._runs.classes.expire)
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
            return f"stopped after {limits.idle_minutes} minutes without a visit"
        if limits.max_minutes is not None and live.seconds_in_training() > 60 * limits.max_minutes:
            return f"stopped after {limits.max_minutes} minutes, the limit for training without a break"
        return ""

    def _to_delete(self) -> list[str]:
        """Return the runs that are too old, and then the least recently used ones until the disk limit is met."""
        limits, now = self._limits, steady_time()
        if limits.max_disk_mb is None and limits.keep_hours is None and limits.keep_shared_hours is None:
            return []
        listings = self._runs.listings()
        active = {live.folder.name for live in self._runs.active()}
        owned = [each for each in listings if each.ownership.owner and not each.shipped and each.name not in active]
        absent = {each.name for each in owned if self._seconds_away(each.ownership.owner) >= PRESENT_SECONDS}
        shared, private = (
            sorted((self._runs.last_used(each.name), each.name) for each in owned if each.ownership.shared is is_shared)
            for is_shared in (True, False)
        )
        doomed = [
            name
            for some, hours in ((shared, limits.keep_shared_hours), (private, limits.keep_hours))
            for at, name in some
            if hours is not None and now - at > 3600 * hours and name in absent
        ]
        if limits.max_disk_mb is None:
            return doomed
        sizes = {each.name: self._runs[each.name].size for each in listings}
        for name in doomed:
            sizes.pop(name)
        limit = limits.max_disk_mb * MEGABYTE
        for at_most, names in (
            (limit // 2, [name for _, name in shared if name in sizes]),
            (0, [name for _, name in private if name in sizes and name in absent]),
        ):
            excess = min(sum(sizes.values()) - limit, sum(sizes[name] for name in names) - at_most)
            for name in names:
                if excess <= 0:
                    break
                doomed.append(name)
                excess -= sizes.pop(name)
        return doomed
