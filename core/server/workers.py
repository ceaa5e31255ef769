"""Worker threads that train runs, or have processes train them: a few at the same time, the others queued."""

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from core.config import Preset
from core.runs import RunError, RunFolder, Status
from core.runs.run import RunCache
from core.server.inference_priority import InferencePriority
from core.server.live import LiveRun
from core.server.queue import NO_POOL, RunQueue
from core.server.training_failures import explain_failure
from core.server.training_process import TrainingProcess, TrainingProcesses
from core.storage.error_messages import short_repr

MAX_FAILED_RUNS = 20
SECONDS_IN_FRONT = 60.0  # that a run trains before it makes way for one of somebody else that waits
_SHUTDOWN = "stopped and saved because the server shut down"
_log = logging.getLogger(__name__)


class WorkerPool:
    """The runs that this process trains or has queued, and failed runs whose folder could not record the failure.

    A run that has trained for ``SECONDS_IN_FRONT`` while one of somebody else waits makes way, if it has a process: it
    goes on at the lowest priority, and the other one starts. So a long run delays short ones for a minute at most.

    Args:
        max_workers: number of runs that train at the same time; as many again may have made way.
        max_per_owner: number of runs of one owner that train at the same time; None is no limit.
        threads: torch threads per run.
        device: the device that runs train on.
        inference_priority: requests that training waits for between two updates.
        processes: starts a process for each training; None trains in the worker threads.
        cache: of the runs.
        seconds_to_start: returns in how many seconds a queued run would start, by its name; None if unknown.
    """

    def __init__(
        self,
        *,
        max_workers: int,
        max_per_owner: int | None,
        threads: int,
        device: str,
        inference_priority: InferencePriority,
        processes: TrainingProcesses | None,
        cache: RunCache,
        seconds_to_start: Callable[[str], float | None],
    ) -> None:
        self._max_workers, self._threads, self._device = max_workers, threads, device
        self._inference_priority, self._processes = inference_priority, processes
        self._cache, self._seconds_to_start = cache, seconds_to_start
        self._is_closed = False
        self._live: dict[str, LiveRun] = {}
        self._failed: OrderedDict[str, LiveRun] = OrderedDict()
        self._queue = RunQueue(max_per_owner=max_per_owner)
        self._workers: dict[str, threading.Thread] = {}
        self._lock = threading.RLock()

    def add(self, folder: RunFolder, preset: Preset, owner: str | None, pool: str = NO_POOL) -> None:
        """Queue a run; it starts immediately if a worker is free.

        Args:
            pool: see ``LiveRun``.

        Raises:
            RunError: another process or thread uses the run.
            OSError: its folder cannot be written to.
        """
        lock = folder.lock()
        try:
            folder.write_info(folder.read_info().model_copy(update={"status": "queued", "message": ""}))
            live = LiveRun(folder, preset, lock, owner, pool, cache=self._cache, place=self._place)
        except BaseException:
            lock.release()
            raise
        with self._lock:
            self._failed.pop(folder.name, None)
            self._live[folder.name] = live
            self._queue.add(folder.name, owner, pool)
            self._start_workers()
        _log.info("queued", extra={"run": folder.name})

    def stop(self, name: str, *, reason: str = "") -> None:
        """Ask a run to stop after its current step; a queued one stops immediately.

        Args:
            reason: message for the owner, if it was not they who stopped it.

        Raises:
            RunError: this process neither trains nor queues the run.
        """
        with self._lock:
            live = self._live.get(name)
            if live is None:
                raise RunError(f"run={short_repr(name)} is not training here, so it cannot be stopped")
            live.reason = reason
            live.stop.set()
            if name in self._queue:
                self._queue.remove(name)
                self._remove(live, recorded=_record_end(live, "stopped", reason))
        _log.info("stop requested", extra={"run": name, "reason": reason})

    def close(self, *, seconds: float) -> None:
        """Stop all runs and wait for them to be saved; then end the processes that still train."""
        with self._lock:
            for name in list(self._live):
                self.stop(name, reason=_SHUTDOWN)
            threads = list(self._workers.values())
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._processes is not None:
            self._is_closed = True
            self._processes.kill()

    def find(self, name: str) -> LiveRun | None:
        """Return a run that is training or queued, or a failed one whose folder could not record that; else None."""
        return self._live.get(name) or self._failed.get(name)

    def names(self) -> list[str]:
        """Return the names of all runs that ``find`` returns."""
        with self._lock:
            return [*self._live, *self._failed]

    def forget(self, name: str) -> bool:
        """Forget a failed run, and return whether there was one."""
        with self._lock:
            return self._failed.pop(name, None) is not None

    def queue_position(self, name: str) -> int | None:
        """Return a run's position in the queue, from 1; None if it is not queued."""
        with self._lock:
            return self._queue.position(name, *self._training()) if name in self._queue else None

    def _place(self, name: str) -> tuple[int | None, float | None]:
        """Return a run's position in the queue, and the seconds until it starts; None if it is not queued."""
        position = self.queue_position(name)
        return position, None if position is None else self._seconds_to_start(name)

    def queued(self) -> list[LiveRun]:
        """Return the queued runs, the next one first."""
        with self._lock:
            return [self._live[name] for name in self._queue.order(*self._training())]

    def active(self) -> list[LiveRun]:
        """Return the runs that are training or queued."""
        with self._lock:
            return list(self._live.values())

    def counts(self) -> dict[str, int]:
        """Return the number of runs in training and in the queue."""
        with self._lock:
            return {"training": len(self._workers), "queued": len(self._queue)}

    def _training(self) -> tuple[Mapping[str | None, int], Mapping[str, int]]:
        """Return the number of runs in training by owner, and by pool. Requires the lock."""
        training = [self._live[name] for name in self._workers]
        return Counter(live.owner for live in training), Counter(live.pool for live in training)

    def _start_workers(self) -> None:
        """Start queued runs while workers are free. Requires the lock."""
        while len(self._workers) - self._made_way() < self._max_workers:
            name = self._queue.next(*self._training())
            if name is None:
                return
            self._queue.remove(name)
            thread = threading.Thread(target=self._work, args=(self._live[name],), name=f"train {name}", daemon=True)
            self._workers[name] = thread
            thread.start()

    def _made_way(self) -> int:
        """Return how many runs have made way. Requires the lock."""
        return sum(self._live[name].has_made_way for name in self._workers)

    def _make_way(self, live: LiveRun, process: TrainingProcess) -> None:
        """Let a run that has trained for long make way, if somebody waits."""
        if live.has_made_way or not live.seconds_in_training() > SECONDS_IN_FRONT:
            return
        with self._lock:
            name = self._queue.next(*self._training())
            if name is None or self._live[name].owner == live.owner or self._made_way() >= self._max_workers:
                return
            process.lower_priority()
            live.has_made_way = True
            self._start_workers()
        _log.info("made way", extra={"run": live.folder.name, "for": name})

    def _work(self, live: LiveRun) -> None:
        name, recorded = live.folder.name, False
        try:
            self._train(live)
            recorded = live.info.status != "stopped" or not live.reason or _record_end(live, "stopped", live.reason)
            _log.info("ended", extra={"run": name, "status": live.info.status, "step": live.info.step})
        except Exception as error:  # noqa: BLE001 - any failure is reported to the owner; other runs continue
            _log.error("failed", extra={"run": name, "step": live.info.step}, exc_info=error)
            recorded = self._is_closed or _record_end(live, "failed", explain_failure(error, live.folder))
        finally:
            with self._lock:
                del self._workers[name]
                self._remove(live, recorded=recorded)
                self._start_workers()

    def _train(self, live: LiveRun) -> None:
        if self._processes is None:
            live.train(self._threads, self._device, self._inference_priority)
        else:
            root, name = live.folder.path.parent, live.folder.name
            process = self._processes.start(root, name, threads=self._threads, device=self._device)
            live.follow(process, lambda: self._make_way(live, process))

    def _remove(self, live: LiveRun, *, recorded: bool) -> None:
        """Remove a run whose training ended; if its folder could not record how, keep that in memory."""
        del self._live[live.folder.name]
        if not recorded:
            self._failed[live.folder.name] = live
            while len(self._failed) > MAX_FAILED_RUNS:
                self._failed.popitem(last=False)
        live.forget_model()
        live.lock.release()


def _record_end(live: LiveRun, status: Status, message: str = "") -> bool:
    """Set a run's final status, and return whether its folder could record it too."""
    end = {"status": status, "message": message}
    live.info = live.info.model_copy(update=end)
    try:
        live.folder.write_info(live.folder.written_info().model_copy(update=end))
    except (OSError, RunError):
        return False
    return True
