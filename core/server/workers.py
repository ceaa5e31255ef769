"""The threads that train: a few runs at once, the others waiting for their turn."""

import errno
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from core.config import Preset
from core.runs import RunError, RunFolder, Status
from core.server.inference_priority import InferencePriority
from core.server.live import LiveRun
from core.server.queue import RunQueue
from core.storage.error_messages import explain_error

REMEMBERED_FAILURES = 20
_CLOSED = "stopped with the server, and saved; Resume goes on from here"
_log = logging.getLogger(__name__)


class WorkerPool:
    """The runs that this process trains, those that wait for it, and those that failed and could not write so.

    Args:
        most: how many train at once.
        most_each: how many of one owner.
        threads: torch threads of each.
        inference_priority: of answers, for which all of them wait between two updates.
        on_end: called with every run that trains no more.
    """

    def __init__(
        self,
        *,
        most: int,
        most_each: int | None,
        threads: int,
        inference_priority: InferencePriority,
        on_end: Callable[[LiveRun], None],
    ) -> None:
        self._most, self._threads, self._right_of_way, self._on_end = most, threads, inference_priority, on_end
        self._live: dict[str, LiveRun] = {}
        self._failed: OrderedDict[str, LiveRun] = OrderedDict()
        self._waiting = RunQueue(most_each=most_each)
        self._training: dict[str, threading.Thread] = {}
        self._lock = threading.RLock()

    def add(self, folder: RunFolder, preset: Preset, owner: str | None) -> None:
        """Train a run, or let it wait.

        Raises:
            RunError: somebody trains it already.
            OSError: its folder cannot be written to.
        """
        lock = folder.lock()
        try:
            folder.write_info(folder.info().model_copy(update={"status": "queued", "message": ""}))
            live = LiveRun(folder, preset, lock, owner)
        except BaseException:
            lock.release()
            raise
        with self._lock:
            self._failed.pop(folder.name, None)
            self._live[folder.name] = live
            self._waiting.add(folder.name, owner)
            self._fill()
        _log.info("queued", extra={"run": folder.name})

    def stop(self, name: str, *, reason: str = "") -> None:
        """Ask a run to stop after its present step; one that waits stops at once; RunError if it does neither here.

        Args:
            reason: what its owner reads, where it was not they who asked.
        """
        with self._lock:
            live = self._live.get(name)
            if live is None:
                raise RunError(f"run={name[:60]!r} is not training here, so it cannot be stopped")
            live.reason = reason
            live.stop.set()
            if name in self._waiting:
                self._waiting.remove(name)
                self._leave(live, kept=_ended(live, "stopped", reason))
        _log.info("asked to stop", extra={"run": name, "reason": reason})

    def close(self, *, seconds: float) -> None:
        """Stop all runs and wait for them to be saved."""
        with self._lock:
            for name in list(self._live):
                self.stop(name, reason=_CLOSED)
            threads = list(self._training.values())
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def live(self, name: str) -> LiveRun | None:
        """Return a run that trains or waits."""
        return self._live.get(name)

    def known(self, name: str) -> LiveRun | None:
        """Return a run that trains or waits, or one of which only this process knows how it ended."""
        return self._live.get(name) or self._failed.get(name)

    def names(self) -> list[str]:
        """Return the names of all that are known."""
        with self._lock:
            return [*self._live, *self._failed]

    def forget(self, name: str) -> bool:
        """Remember a failed run no longer, and tell whether there was one."""
        with self._lock:
            return self._failed.pop(name, None) is not None

    def queue_position(self, name: str) -> int | None:
        """Return a run's place in the queue, from 1; None if it does not wait."""
        with self._lock:
            return self._waiting.position(name, self._owners()) if name in self._waiting else None

    def active(self) -> list[LiveRun]:
        """Return the runs that train or wait."""
        with self._lock:
            return list(self._live.values())

    def counts(self) -> dict[str, int]:
        """Return how many train and how many wait."""
        with self._lock:
            return {"training": len(self._training), "queued": len(self._waiting)}

    def _owners(self) -> Mapping[str | None, int]:
        return Counter(self._live[name].owner for name in self._training)

    def _fill(self) -> None:
        while len(self._training) < self._most:
            name = self._waiting.next(self._owners())
            if name is None:
                return
            self._waiting.remove(name)
            thread = threading.Thread(target=self._work, args=(self._live[name],), name=f"train {name}", daemon=True)
            self._training[name] = thread
            thread.start()

    def _work(self, live: LiveRun) -> None:
        name, kept = live.folder.name, False
        try:
            live.train(self._threads, self._right_of_way)
            kept = live.info.status != "stopped" or not live.reason or _ended(live, "stopped", live.reason)
            _log.info("ended", extra={"run": name, "status": live.info.status, "step": live.info.step})
        except Exception as error:  # noqa: BLE001 - whatever it was, its owner is told, and the other runs go on
            _log.error("failed", extra={"run": name, "step": live.info.step}, exc_info=error)
            kept = _ended(live, "failed", explain_error(_first(error, live.folder)))
        finally:
            with self._lock:
                del self._training[name]
                self._leave(live, kept=kept)
                self._fill()

    def _leave(self, live: LiveRun, *, kept: bool) -> None:
        """Leave a run to its files; what they cannot tell is remembered until the process ends."""
        del self._live[live.folder.name]
        if not kept:
            self._failed[live.folder.name] = live
            while len(self._failed) > REMEMBERED_FAILURES:
                self._failed.popitem(last=False)
        self._on_end(live)
        live.lock.release()


def _first(error: Exception, folder: RunFolder) -> BaseException:
    """Return what went wrong first: a full disk, say, lets the note of a failure fail too."""
    if not folder.exists():
        return FileNotFoundError(errno.ENOENT, "the run's folder")
    first: BaseException = error
    while isinstance(first, OSError) and first.__context__ is not None:
        first = first.__context__
    return first


def _ended(live: LiveRun, status: Status, message: str = "") -> bool:
    """Note how a run ended, and tell whether its files say so too."""
    end = {"status": status, "message": message}
    live.info = live.info.model_copy(update=end)
    try:
        live.folder.write_info(live.folder.written_info().model_copy(update=end))
    except (OSError, RunError):
        return False
    return True
