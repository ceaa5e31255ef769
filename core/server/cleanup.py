"""What nobody needs any more ends and goes: runs of visitors who left, and old ones, never one in use."""

import logging
import threading
import time
from collections.abc import Callable

from core.runs import RunFolder
from core.server.limits import MEGABYTE
from core.server.live import LiveRun
from core.server.registry import Runs
from core.storage.errors import LabError

SECONDS_BETWEEN = 20.0
_log = logging.getLogger(__name__)


class Cleanup:
    """Holds to the limits that time breaks.

    A run is in use while it trains or waits, and while its owner is here. Runs that are shared, that came with the
    program, or that belong to nobody (who started them has a command line to delete them from) are never deleted.

    Args:
        seconds_away: tells for how long an owner has not been here.
    """

    def __init__(self, runs: Runs, seconds_away: Callable[[str | None], float]) -> None:
        self._runs, self._limits, self._seconds_away = runs, runs.limits, seconds_away
        self._ended = threading.Event()

    def start(self) -> None:
        """Tidy every now and then, in a thread of its own, until ``close``."""
        threading.Thread(target=self._repeat, name="housekeeping", daemon=True).start()

    def close(self) -> None:
        """Tidy no more."""
        self._ended.set()

    def run_once(self) -> None:
        """Stop and delete once what has to be."""
        for live in self._runs.active():
            reason = self._reason_to_stop(live)
            if reason and not live.stop.is_set():
                self._attempt(lambda name=live.folder.name, reason=reason: self._runs.stop(name, reason=reason))
        for name in self._to_delete():
            _log.info("too old, or too much", extra={"run": name})
            self._attempt(lambda name=name: self._runs.delete(name))

    def _repeat(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN):
            self._attempt(self.run_once)

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except LabError as error:  # it ended, or went, by itself meanwhile
            _log.info("not tidied: %s", error)
        except Exception:  # noqa: BLE001 - tidying is tried again, and the server goes on
            _log.exception("housekeeping failed")

    def _reason_to_stop(self, live: LiveRun) -> str:
        limits = self._limits
        if limits.idle_minutes is not None and self._seconds_away(live.owner) > 60 * limits.idle_minutes:
            return f"stopped because nobody was here for {limits.idle_minutes} minutes; press Resume to go on"
        trained = 0.0 if live.began is None else time.monotonic() - live.began
        if limits.max_minutes is not None and trained > 60 * limits.max_minutes:
            return f"stopped after {limits.max_minutes} minutes, as long as a run may train at a stretch"
        return ""

    def _to_delete(self) -> list[str]:
        """Return the runs that are too old, and then the oldest of those that are too many."""
        most, hours = self._limits.max_disk_mb, self._limits.keep_hours
        if most is None and hours is None:
            return []
        deletable = sorted((self._last_changed(name), name) for name in self._runs.names() if self._may_go(name))
        old = [name for at, name in deletable if hours is not None and time.time() - at > 3600 * hours]
        if most is None:
            return old
        sizes = {name: RunFolder(self._runs.root, name).size() for name in self._runs.names()}
        over = sum(sizes.values()) - sum(sizes[name] for name in old) - most * MEGABYTE
        for _, name in deletable:
            if over <= 0:
                break
            if name not in old:
                old.append(name)
                over -= sizes[name]
        return old

    def _may_go(self, name: str) -> bool:
        ownership = self._runs.ownership(name)
        in_use = any(live.folder.name == name for live in self._runs.active())
        present = self._seconds_away(ownership.owner) < 60.0
        lasting = ownership.owner is None or ownership.shared or self._runs.info(name).shipped
        return not (in_use or present or lasting)

    def _last_changed(self, name: str) -> float:
        try:
            return (RunFolder(self._runs.root, name).path / "run.json").stat().st_mtime
        except FileNotFoundError:
            return 0.0
