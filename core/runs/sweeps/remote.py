"""What a Ray cluster runs for a sweep: a task that trains one run on any node, and the mail that its driver sends it.

A node needs Python and the packages, but neither the repository nor a shared disk: Ray brings this package, the run's
folder comes with the task, and what changes in it goes back with the task's messages. The task trains in a folder of
its own, which it deletes; the next task deletes what one that was killed has left.
"""

import asyncio
import contextlib
import queue
import shutil
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from core.runs.sweeps.transfer import Files, Sender, write_files
from core.runs.sweeps.worker import PRUNED, STOPPED, Request
from core.storage.atomic import is_older_than
from core.storage.errors import LabError

SECONDS_BETWEEN_TRANSFERS = 5.0  # while it trains: so much of it a run on a lost node may have to repeat
_TRANSFER_SHARE = 0.05  # of the time, if transfers take long
_POLL_SECONDS = 0.25  # until a run that is told to stop notices
_PREFIX = "attention-lab-run-"
_ABANDONED_SECONDS = 3_600.0
_TAIL = 2_000  # characters of a traceback that are reported

Content = dict[str, Any]
"""A message: ``evaluation`` and ``figures``; ``files``; or ``end``, an exit code as a worker's, and ``error``."""


class Mailbox:
    """An actor beside the driver: keeps what it sends to tasks until they ask for it."""

    def __init__(self) -> None:
        self._mail: defaultdict[str, asyncio.Queue[str]] = defaultdict(asyncio.Queue)

    async def put(self, key: str, text: str) -> None:
        """Send "continue", "prune" or "stop" to a task."""
        self._mail[key].put_nowait(text)

    async def next(self, key: str) -> str:
        """Wait for the next message to a task."""
        return await self._mail[key].get()

    async def close(self, key: str) -> None:
        """Forget a task that has ended."""
        self._mail.pop(key, None)


def train_on_node(request: str, files: Files, mailbox: Any, key: str, torch_version: str) -> Iterator[Content]:
    """Train a run, and yield what a driver must know of it; the last message is its end.

    Args:
        request: a ``Request`` as JSON, whose ``root`` and ``pairs`` do not count.
        files: the run's folder.
        mailbox: handle of the ``Mailbox``.
        key: of this task's mail.
        torch_version: that the driver has; with another one, results would not be the same.
    """
    import torch

    yield {"started": True}
    if torch.__version__ != torch_version:
        error = (
            f"a node of the cluster has torch {torch.__version__}; the sweep needs {torch_version}, as its driver has"
        )
        yield {"end": 2, "error": error}
        return
    with _folder_of_its_own() as root:
        training = _Training(Request.model_validate_json(request), files, root)
        try:
            yield from _messages(training, mailbox, key)
        finally:
            training.end()


def _messages(training: "_Training", mailbox: Any, key: str) -> Iterator[Content]:
    import ray

    mail = mailbox.next.remote(key)
    while True:
        try:
            content = training.messages.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            content = None
        if content is not None:
            yield content
            if "end" in content:
                return
        waits = content is not None and training.request.waits and "evaluation" in content
        if ray.wait([mail], timeout=None if waits else 0)[0]:
            try:
                training.answer(ray.get(mail))
            except ray.exceptions.RayError:  # the mailbox is gone, and its driver with it
                training.answer("stop")
            mail = mailbox.next.remote(key)


class _Training:
    """Trains a run in a thread, and puts messages into a queue, which holds it back if nobody takes them."""

    def __init__(self, request: Request, files: Files, root: Path) -> None:
        self.request, self._files, self._root = request, files, root
        self.messages: queue.Queue[Content] = queue.Queue(maxsize=2)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reasons: list[str] = []
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def answer(self, text: str) -> None:
        """Take what the driver says: "continue" or "prune" after an evaluation, or "stop" at any time."""
        if text == "stop":
            self.stop(STOPPED)
        self._answers.put(text)

    def stop(self, reason: str) -> None:
        """Let the run be saved and ended after the present update."""
        self._reasons.append(reason)
        self._answers.put("stop")

    def end(self) -> None:
        """Stop the run if nobody takes its messages any more, and wait until the thread has ended."""
        self.stop(STOPPED)
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self.messages.get(timeout=_POLL_SECONDS)

    def _train(self) -> None:
        try:
            code, error = self._trained()
        except LabError as problem:
            code, error = 2, str(problem)
        except Exception:  # noqa: BLE001 - the driver reports it; the run's folder says that it failed
            code, error = 1, traceback.format_exc()[-_TAIL:].strip()
        self.messages.put({"end": code, "error": error})

    def _trained(self) -> tuple[int, str]:
        from core.config import Preset
        from core.runs import RunFolder
        from core.runs.sweeps.training import reported, sweep_training

        folder = RunFolder(self._root, self.request.run)
        folder.path.mkdir()
        write_files(folder, self._files)
        self._files = {}
        sender, next_transfer = Sender(folder), time.monotonic() + SECONDS_BETWEEN_TRANSFERS

        try:
            with sweep_training(
                folder,
                Preset.model_validate_json(self.request.preset),
                pairs=folder.pairs if folder.pairs.exists() else None,
                command=self.request.command,
                device=self.request.device,
                logs=self.request.logs,
            ) as run:
                for report in reported(run, minutes=self.request.minutes, reasons=self._reasons):
                    if (begun := time.monotonic()) > next_transfer:
                        self.messages.put({"files": sender.changed()})
                        taken = time.monotonic() - begun
                        next_transfer = begun + max(SECONDS_BETWEEN_TRANSFERS, taken / _TRANSFER_SHARE)
                    self.messages.put(report)
                    if self.request.waits and self._answers.get() == "prune":
                        self._reasons.append(PRUNED)
        finally:
            self.messages.put({"files": sender.changed()})
        if run.info.status == "stopped" and self._reasons[:1] == [STOPPED]:
            return 143, ""
        return int(run.info.status == "failed"), ""


@contextlib.contextmanager
def _folder_of_its_own() -> Iterator[Path]:
    """Make a folder for runs that only this task uses, and delete it at the end and those that killed tasks left."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, Timeout):  # it is another user's, or in use
            if is_older_than(left, _ABANDONED_SECONDS):
                with FileLock(left / ".lock", blocking=False):
                    shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as path, FileLock(Path(path) / ".lock"):
        yield Path(path)
