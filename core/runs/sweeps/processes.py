"""Processes that train runs of a sweep, and what this machine has room for."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.runs.sweeps.worker import Request

REPOSITORY = Path(__file__).resolve().parents[3]
_CGROUP_CPUS = Path("/sys/fs/cgroup/cpu.max")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_TAIL = 2_000  # characters of a process's standard error that are kept


@dataclass(frozen=True)
class Message:
    """What a process wrote, or None when it has ended."""

    process: Any  # a RunProcess, or a ClusterRun
    content: dict[str, Any] | None


class RunProcess:
    """A process that trains one run; it puts a ``Message`` into the queue for each line that it writes, and at its end.

    Args:
        request: what to train.
        messages: where messages are put.
    """

    def __init__(self, request: Request, messages: "queue.SimpleQueue[Message]") -> None:
        self.request = request
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end
        self._process = subprocess.Popen(
            [sys.executable, "-m", "core.runs.sweeps.worker"],
            cwd=REPOSITORY,
            env=os.environ | dict.fromkeys(THREADS, "1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl+C is for the program that started it, which tells it to stop
        )
        threading.Thread(target=self._read, args=(messages,), daemon=True).start()
        self.send(request.model_dump_json())

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def send(self, line: str) -> None:
        """Write a line to its standard input; nothing happens if it has ended."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def stop(self) -> None:
        """Ask it to save its run and end."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> tuple[int, str]:
        """Wait until it has ended, and return its exit code and the last words of its standard error."""
        code = self._process.wait()
        self.stop()
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL))
        text = self._errors.read().decode("utf-8", "replace").strip()
        self._errors.close()
        return code, text

    def _read(self, messages: "queue.SimpleQueue[Message]") -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        with self._process.stdout as output:
            for line in output:
                with contextlib.suppress(ValueError):  # something else that was printed
                    messages.put(Message(self, json.loads(line)))
        messages.put(Message(self, None))


def usable_cores() -> int:
    """Return the number of cores that this process may use: of the machine, its affinity, or its container."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CGROUP_CPUS.read_text(encoding="ascii").split()
        cores = min(cores, max(1, int(quota) // int(period)))  # "max" is no number: no quota
    return cores
