"""A Ray cluster that trains the runs of a sweep; Ray is imported only where one is used.

The runs' folders are the driver's. It holds a run's lock as long as a task trains the run, so that other drivers on
its disk leave the run to it, and writes what the task sends. A driver that ends takes its tasks with it: Ray ends the
tasks of a driver that is gone.
"""

import contextlib
import importlib.metadata
import math
import queue
import secrets
import threading
import time
from pathlib import Path
from typing import Any

from core.config import Preset
from core.runs import RunError, RunFolder
from core.runs.provenance import COMMIT_VARIABLE, commit_of_program
from core.runs.sweeps.checks import MEGABYTE
from core.runs.sweeps.processes import THREADS, Message
from core.runs.sweeps.sweep import Resources
from core.runs.sweeps.transfer import read_files, write_files
from core.runs.sweeps.worker import Request
from core.storage.error_messages import shortened
from core.storage.errors import InputError, LabError
from core.storage.optional_imports import require_package

NODE_LOST = 512  # in place of an exit code, which is below 256: the node of a run is gone
_ROOM_SECONDS = 5.0  # for which the size of the cluster is not asked for again
_PACKAGE = Path(__file__).resolve().parents[2]


class Cluster:
    """The connection of this process to a Ray cluster.

    Args:
        address: of the cluster's head, ``HOST:PORT``, or "auto" for the cluster that this machine belongs to.
        resources: what each run reserves.

    Raises:
        LabError: Ray is not installed, there is no such cluster, or it does not let this process in.
    """

    def __init__(self, address: str, resources: Resources) -> None:
        if "://" in address or address == "local":
            raise InputError(
                f"--ray={shortened(address)} must be HOST:PORT, or auto for the cluster that this machine is a node of"
            )
        self._ray: Any = require_package("ray", purpose="--ray")
        self.resources = resources
        self._connect(address)
        self._room, self._room_time = 1, -math.inf
        from core.runs.sweeps.remote import Mailbox, train_on_node

        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        mailbox = self._ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here, max_concurrency=100_000)
        self.mailbox = mailbox.remote()
        self._task = self._ray.remote(train_on_node)
        self._torch_version = importlib.metadata.version("torch")

    def room(self) -> int:
        """Return how many runs the nodes have room for together, at least 1."""
        if time.monotonic() - self._room_time > _ROOM_SECONDS:
            self._room = max(1, sum(map(self._runs_on, self._nodes())))
            self._room_time = time.monotonic()
        return self._room

    def fits(self) -> bool:
        """Whether a node is large enough for a run, as far as the resources name what it needs."""
        memory = (self.resources.memory_mb or 0) * MEGABYTE
        return any(self._runs_on(node) and node.get("memory", 0.0) >= memory for node in self._nodes())

    def submit(self, request: Request, memory: int, files: dict[str, bytes], key: str) -> Any:
        """Hand a run over; return the references of its messages, as they come.

        Args:
            request: what to train.
            memory: bytes it is estimated to take.
            files: the run's folder.
            key: of the task's mail.
        """
        wanted = self.resources
        task = self._task.options(
            name=request.run,
            num_cpus=wanted.cpus,
            num_gpus=wanted.gpus,
            memory=wanted.memory_mb * MEGABYTE if wanted.memory_mb else memory,
            num_returns="streaming",
            max_retries=0,  # the driver begins it again, from what it has been sent
            _generator_backpressure_num_objects=2,
        )
        return task.remote(request.model_dump_json(), files, self.mailbox, key, self._torch_version)

    def get(self, reference: Any) -> Any:
        """Fetch a message."""
        return self._ray.get(reference)

    def cancel(self, references: Any) -> None:
        """Take back a task that has not begun."""
        self._ray.cancel(references)

    def ending_of(self, error: Exception) -> tuple[int, str]:
        """Return the code and the reason for which a task has ended without saying so."""
        kinds = self._ray.exceptions
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, kinds.TaskCancelledError):
            return 143, ""
        gone = (kinds.NodeDiedError, kinds.ObjectLostError)
        return (NODE_LOST if isinstance(error, gone) else -9), f"{type(error).__name__}: {text}"

    def close(self) -> None:
        """Leave the cluster; runs that still train there end."""
        self._ray.shutdown()

    def _connect(self, address: str) -> None:
        environment = dict.fromkeys(THREADS, "1") | {COMMIT_VARIABLE: commit_of_program() or ""}
        try:
            self._ray.init(
                address=address,
                configure_logging=False,
                log_to_driver=False,
                runtime_env={"py_modules": [str(_PACKAGE)], "excludes": ["__pycache__"], "env_vars": environment},
            )
        except (ConnectionError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise LabError(f"--ray={address}: this cluster cannot be used: {reason}") from error

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _runs_on(self, node: dict[str, float]) -> int:
        """Return for how many runs a node has cores and GPUs; Ray itself looks at its memory."""
        rooms = [node.get("CPU", 0.0) / self.resources.cpus]
        if self.resources.gpus:
            rooms.append(node.get("GPU", 0.0) / self.resources.gpus)
        return math.floor(min(rooms) + 1e-6)


class ClusterRun:
    """A run that a cluster trains, with the same messages and methods as a ``RunProcess``.

    Args:
        cluster: where to train it.
        request: what to train.
        memory: bytes that it is estimated to take.
        messages: where messages are put.
    """

    def __init__(self, cluster: Cluster, request: Request, memory: int, messages: "queue.SimpleQueue[Message]") -> None:
        self.request = request
        self._cluster, self._memory, self._messages = cluster, memory, messages
        self._key = secrets.token_hex(8)
        self._ending: tuple[int, str] = (143, "")
        self._begun = self._stopping = False
        self._references: Any = None
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def send(self, line: str) -> None:
        """Send a word to the task."""
        with contextlib.suppress(Exception):  # the cluster is gone, as its messages will say
            self._cluster.mailbox.put.remote(self._key, line)

    def stop(self) -> None:
        """Let it save its run and end; a task that waits for a node is taken back."""
        with self._guard:
            self._stopping = True
            if self._references is not None and not self._begun:
                self._cluster.cancel(self._references)
        self.send("stop")

    def end(self) -> tuple[int, str]:
        """Wait until it has ended; return its exit code, or ``NODE_LOST``, and the reason if it failed."""
        self._thread.join()
        return self._ending

    def _train(self) -> None:
        try:
            self._ending = self._trained()
        except LabError as error:
            self._ending = 2, str(error)
        except OSError as error:
            self._ending = 2, f"{error.strerror or error}"
        finally:
            self._messages.put(Message(self, None))

    def _trained(self) -> tuple[int, str]:
        request = self.request
        preset = Preset.model_validate_json(request.preset)
        folder = RunFolder(Path(request.root), request.run)
        if not folder.exists():
            RunFolder.create(Path(request.root), preset, name=request.run, pairs=self._pairs)
        lock = folder.lock()
        try:
            if folder.read_preset() != preset:
                raise RunError(f"run={folder.name!r} exists already, with another preset")
            with self._guard:
                if self._stopping:
                    return 143, ""
                self._references = self._cluster.submit(request, self._memory, read_files(folder), self._key)
            try:
                return self._follow(folder)
            except Exception as error:
                if not type(error).__module__.startswith("ray."):
                    raise
                return self._cluster.ending_of(error)
        finally:
            lock.release()

    def _follow(self, folder: RunFolder) -> tuple[int, str]:
        """Take the task's messages until it ends; after one that cannot be stored, let it stop."""
        problem = ""
        for reference in self._references:
            content = self._cluster.get(reference)
            if "started" in content:
                with self._guard:
                    self._begun = True
                folder.write_info(folder.written_info().model_copy(update={"status": "training"}))
            elif "end" in content:
                return (2, problem) if problem else (content["end"], content["error"])
            elif "files" not in content:
                self._messages.put(Message(self, content))
            elif not problem:
                try:
                    write_files(folder, content["files"])
                except OSError as error:
                    problem = f"run={folder.name!r} cannot be written: {error.strerror or error}"
                    self.stop()
        return -9, "its task ended without a result"

    @property
    def _pairs(self) -> Path | None:
        return Path(self.request.pairs) if self.request.pairs else None
