"""The process that trains one run of the page: started by ``core.server.training_process``, and ended by its end.

It trains as the command line does, under the lock that the page's process holds for the run's folder. It stops and
saves when it is told to, and after SIGTERM. When the page's process is gone, so is the lock: it ends without saving.
"""

import contextlib
import gc
import logging
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from safetensors.torch import save

from core.runs import RunFolder, RunInfo
from core.runs.provenance import PAGE
from core.runs.recorder import mark_failed
from core.runs.training import Training, training
from core.runs.training_state import clone_weights
from core.server.training_failures import explain_failure
from core.server.training_messages import (
    SECONDS_BETWEEN_COPIES,
    Ended,
    Failed,
    Logged,
    Message,
    Started,
    Update,
    Weights,
    info_fields,
)
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent

STOP = "stop"  # what the page's process sends
SECONDS_BETWEEN_UPDATES = 0.1  # a page looks twice a second
NICENESS = 10  # the page answers first: a training gets what it leaves of the processors
MAX_COPYING_SHARE = 0.05  # of the time that copies of large weights may take
_OOM_SCORE = Path("/proc/self/oom_score_adj")
_MORE_LIKELY = "500"  # of 1000: as if it used half of the memory more


@dataclass(frozen=True)
class TrainingRequest:
    """What to train, and how.

    Attributes:
        root: the folder of runs.
        run: name of the run.
        threads: torch threads of a new run; see ``LiveRun.train``.
        device: "cpu" or "cuda".
        prepare: called first, for example to load plugins.
        log_level: records below are not sent.
    """

    root: Path
    run: str
    threads: int
    device: str
    prepare: Callable[[], None]
    log_level: int


def main(connection: Connection, request: TrainingRequest) -> None:
    """Train a run, and send messages about it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the page's process, which tells this one to stop
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # where memory runs out, the system ends a training and not the page
        _OOM_SCORE.write_text(_MORE_LIKELY, encoding="ascii")
    channel = _Channel(connection)
    threading.Thread(target=_listen, args=(connection, stop), daemon=True).start()
    logging.getLogger().handlers[:] = [_LogHandler(channel)]
    logging.getLogger().setLevel(request.log_level)
    folder = RunFolder(request.root, request.run)
    try:
        with mark_failed(folder):
            request.prepare()
        gc.freeze()  # modules stay alive: the garbage collector need not scan them
        info = _train(folder, request, channel, stop)
    except Exception as error:  # noqa: BLE001 - any failure is reported to the owner
        channel.send(Failed(explain_failure(error, folder), traceback.format_exc()))
    else:
        channel.send(Ended(info))


def _train(folder: RunFolder, request: TrainingRequest, channel: "_Channel", stop: threading.Event) -> RunInfo:
    torch.set_num_threads(request.threads)
    with training(folder, device=request.device, command=PAGE, is_locked=True) as run:
        publisher = _Publisher(channel, run)
        for event in run:
            publisher.take(event)
            if isinstance(event, StepEvent) and stop.is_set():
                break
    publisher.publish()
    return run.info


class _Channel:
    """Sends messages; may be used by several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message, or leave if nobody can receive it."""
        try:
            with self._lock:
                self._connection.send(message)
        except OSError:
            _leave()


class _Publisher:
    """Collects what the page shows of a training, and sends it a few times a second."""

    def __init__(self, channel: _Channel, run: Training) -> None:
        self._channel, self._run, self._state = channel, run, run.state
        self._events: list[StepEvent | EvaluationEvent] = []
        self._sent_at = self._copied_at = 0.0
        self._pause = SECONDS_BETWEEN_COPIES
        channel.send(Started(self._state.step, self._state.evaluated_step))

    def take(self, event: Event) -> None:
        """Collect an event, after it has been recorded."""
        if isinstance(event, EndEvent):
            return
        self._events.append(event)
        now = time.monotonic()
        if isinstance(event, EvaluationEvent) or now - self._copied_at > self._pause:
            self.publish(with_weights=True)
            self._copied_at = time.monotonic()
            self._pause = max(SECONDS_BETWEEN_COPIES, (self._copied_at - now) / MAX_COPYING_SHARE)
        elif now - self._sent_at > SECONDS_BETWEEN_UPDATES:
            self.publish()

    def publish(self, *, with_weights: bool = False) -> None:
        """Send what has been collected."""
        evaluated = [event.step for event in self._events if isinstance(event, EvaluationEvent)]
        kept: list[Weights] = []
        for step in evaluated:
            if (weights := self._run.weights_by_step.at(step)) is not None:
                kept.append((step, save(weights)))
        update = Update(
            info_fields(self._state),
            tuple(self._events),
            tuple(each for each in self._run.replay.snapshots() if each.step in evaluated),
            tuple(kept),
            (self._state.step, save(clone_weights(self._state.model))) if with_weights else None,
        )
        self._events.clear()
        self._channel.send(update)
        self._sent_at = time.monotonic()


class _LogHandler(QueueHandler):
    """Sends records to the page's process, whose handlers write them."""

    def __init__(self, channel: _Channel) -> None:
        super().__init__(queue.SimpleQueue())  # stays empty
        self._channel = channel

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a record that ``prepare`` has made fit for another process."""
        self._channel.send(Logged(record))


def _listen(connection: Connection, stop: threading.Event) -> None:
    """Wait until the page's process says to stop, and leave when it is gone."""
    with contextlib.suppress(EOFError, OSError):
        while connection.recv() == STOP:
            stop.set()
    _leave()


def _leave() -> None:
    """End at once: the page's process, which held the run's lock, is gone, and another one may train it."""
    os._exit(1)
