"""Processes that train the page's runs, one a training: what ends one of them does not end the page.

They are forked from a process that has imported everything (``multiprocessing``'s fork server), so that a training
starts without importing PyTorch again. Only on Linux: on other systems a process with PyTorch cannot be forked safely.
"""

import logging
import multiprocessing
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver
from pathlib import Path

from core.server import training_child
from core.server.training_child import STOP, TrainingRequest
from core.server.training_failures import NOT_STARTED, TrainingProcessError, explain_exit
from core.server.training_messages import Message

IS_SUPPORTED = sys.platform == "linux"
REPOSITORY = Path(__file__).resolve().parents[2]
_WARM_UP = "core.server.training_warm_up"
_PATH = "PYTHONPATH"
LOWEST_PRIORITY = 19  # as the command ``nice`` counts
_SECONDS_TO_EXIT = 2.0  # of a process that has closed its connection


class TrainingProcess:
    """A process that trains one run; started by ``TrainingProcesses``."""

    def __init__(
        self, process: multiprocessing.context.ForkServerProcess, messages: connection.Connection, lock: threading.Lock
    ) -> None:
        self._process, self._messages, self._lock = process, messages, lock

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process.pid is not None  # noqa: S101 - it has been started
        return self._process.pid

    def receive(self, *, seconds: float) -> Message | None:
        """Return the next message, or None if none arrives for so long.

        Raises:
            TrainingProcessError: the process has ended.
        """
        try:
            return self._messages.recv() if self._messages.poll(seconds) else None
        except (EOFError, OSError):
            raise TrainingProcessError(explain_exit(self._exit_code())) from None

    def stop(self) -> None:
        """Ask it to stop after the current step, and save; nothing happens if it has ended."""
        try:
            self._messages.send(STOP)
        except OSError:  # ``receive`` reports it
            return

    def lower_priority(self) -> None:
        """Let it train in the time that nothing else needs; nothing happens if it has ended."""
        with suppress(OSError):
            for thread in Path(f"/proc/{self.pid}/task").iterdir():  # Linux has a priority for each thread
                os.setpriority(os.PRIO_PROCESS, int(thread.name), LOWEST_PRIORITY)

    def kill(self) -> None:
        """End it at once, without saving; nothing happens if it has ended."""
        with self._lock:
            self._process.kill()

    def close(self) -> None:
        """End it, if it has not ended, and release what it needed."""
        self._messages.close()  # it leaves when it notices
        if self._exit_code() is None:
            self.kill()
            self._exit_code()

    def _exit_code(self) -> int | None:
        """Wait a moment for its end, and return its exit code, or minus the signal that ended it; None if it lives."""
        connection.wait([self._process.sentinel], _SECONDS_TO_EXIT)
        with self._lock:  # of two threads that ask at the same time, one would not get the code
            self._process.join(0)
            return self._process.exitcode


class TrainingProcesses:
    """Starts the processes that train runs.

    Args:
        prepare: called first in each process, for example to load plugins; a function of a module, or a ``partial``.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
        self._context = multiprocessing.get_context("forkserver")
        self._lock = threading.Lock()
        self._started: weakref.WeakSet[TrainingProcess] = weakref.WeakSet()

    def warm_up(self) -> None:
        """Start the process that others are forked from, which takes seconds to import PyTorch; do not wait for it."""
        self._context.set_forkserver_preload([_WARM_UP])
        with _repository_on_path():
            forkserver.ensure_running()

    def start(self, root: Path, run: str, *, threads: int, device: str) -> TrainingProcess:
        """Start a process that trains a run; see ``LiveRun.train`` for the arguments.

        Raises:
            TrainingProcessError: it cannot be started.
        """
        request = TrainingRequest(
            root=root.resolve(),
            run=run,
            threads=threads,
            device=device,
            prepare=self._prepare,
            log_level=logging.getLogger().getEffectiveLevel(),
        )
        ours, theirs = self._context.Pipe()
        try:
            with self._lock:
                self.warm_up()
                process = self._context.Process(target=training_child.main, args=(theirs, request), daemon=True)
                process.start()
        except (OSError, EOFError) as error:  # no memory to fork, or no file left to open
            ours.close()
            raise TrainingProcessError(NOT_STARTED) from error
        finally:
            theirs.close()  # so that the end of the process is the end of its messages
        started = TrainingProcess(process, ours, self._lock)
        self._started.add(started)
        return started

    def kill(self) -> None:
        """End all processes that still train at once, without saving."""
        for each in list(self._started):
            each.kill()


def nothing_to_prepare() -> None:
    """Prepare nothing in a process that trains."""


@contextmanager
def _repository_on_path() -> Iterator[None]:
    """Let a process that is started in the block import this program, whatever folder it was started in."""
    before = os.environ.get(_PATH)
    os.environ[_PATH] = os.pathsep.join(filter(None, [str(REPOSITORY), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PATH]
        else:
            os.environ[_PATH] = before
