"""A run that a worker thread trains, or has a process train, and its state as other threads may read it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import load

from core.config import Preset
from core.interpret.trained import Trained
from core.runs import ACTIVE, Run, RunError, RunFolder, RunInfo, RunProgress, Status
from core.runs.load import build_run
from core.runs.provenance import PAGE
from core.runs.replay import Replay
from core.runs.run import RunCache
from core.runs.training import training
from core.runs.training_state import clone_weights
from core.runs.weights_by_step import WeightsByStep
from core.server.inference_priority import InferencePriority
from core.server.queue import NO_POOL
from core.server.training_failures import TrainingProcessError
from core.server.training_messages import (
    SECONDS_BETWEEN_COPIES,
    Ended,
    Failed,
    Logged,
    Message,
    Started,
    Update,
    info_fields,
)
from core.server.training_process import TrainingProcess
from core.training.history import History
from core.training.loop import EvaluationEvent, Event, StepEvent
from core.training.state import TrainingState

MADE_WAY = "Others wait, so this run goes on more slowly beside theirs."
RATE_WINDOW_SECONDS = 5.0
SECONDS_BETWEEN_LOOKS = 0.1  # at whether a run that a process trains is to be stopped


class LiveRun(Run):
    """One run from the moment it is queued until its worker ends: what is newer in memory than on disk.

    Attributes:
        lock: of its folder, held all that time.
        owner: its owner as stored on disk, see ``ownership.owner_of``.
        pool: what it shares a quota and a turn in the queue with, see ``Class.pool``; "" outside of classes.
        reason: why it was stopped, if its owner did not ask for that.
        started_at: ``time.monotonic()`` when its worker began to train it; None while it is queued.
        has_made_way: whether it goes on at the lowest priority because another run waited, see ``WorkerPool``.
        stop: event that asks the run to stop after the current step.
    """

    def __init__(
        self,
        folder: RunFolder,
        preset: Preset,
        lock: FileLock,
        owner: str | None = None,
        pool: str = NO_POOL,
        *,
        cache: RunCache | None = None,
        place: Callable[[str], tuple[int | None, float | None]] = lambda name: (None, None),
    ) -> None:
        super().__init__(folder, cache)
        self.lock, self.owner, self.pool = lock, owner, pool
        self.stop = threading.Event()
        self.reason = ""
        self.started_at: float | None = None
        self.has_made_way = False
        self._preset, self._place = preset, place
        self._info = folder.read_info()
        self._history = History.load(folder.metrics)
        self._replay = Replay.load(folder.replay_file, preset.training.evaluate_every)
        self._weights_by_step = WeightsByStep.load(folder.weights_by_step_file)
        self._weights: tuple[int, dict[str, torch.Tensor] | bytes] | None = None
        self._model: Trained | None = None
        self._copied_at = 0.0
        self._times: deque[tuple[float, int]] = deque()

    @property
    def preset(self) -> Preset:
        """The preset, also if its file is gone."""
        return self._preset

    @property
    def info(self) -> RunInfo:
        """Status and metrics as of the last event."""
        is_stopping = self.stop.is_set() and self._info.status in ACTIVE
        return self._info.model_copy(update={"status": "stopping"}) if is_stopping else self._info

    @info.setter
    def info(self, info: RunInfo) -> None:
        self._info = info

    @property
    def progress(self) -> RunProgress:
        """How far the training is, how fast it goes on, and when it starts."""
        info = self.info
        rate = self.steps_per_second() if info.status in ACTIVE else None  # its thread may outlive the training
        position, seconds_to_start = self._place(self.name)
        return RunProgress(info, self.preset.training.steps, position, rate, seconds_to_start)

    @property
    def history(self) -> History:
        """The metrics by step, growing."""
        return self._history

    @property
    def replay(self) -> Replay:
        """The attention snapshots, growing."""
        return self._replay

    @property
    def weights_by_step(self) -> WeightsByStep:
        """The weights at a few training steps, growing."""
        return self._weights_by_step

    @property
    def size(self) -> int:
        """The size of its files in bytes, counted each time: they grow in place."""
        return self.folder.count_bytes()

    @property
    def has_weights(self) -> bool:
        """Whether there is a copy of the weights yet, or a file of an earlier session."""
        return self._weights is not None or super().has_weights

    def trained(self, step: int | None = None) -> Trained:
        """Return the model with the latest weights; with the best ones once it has ended, or before the first copy."""
        has_ended = self._info.status not in ACTIVE  # its thread may still run
        if step is not None or self._weights is None or (has_ended and super().has_weights):
            return super().trained(step)
        latest, weights = self.latest_weights()
        model = self._model
        if model is None or model.step != latest:
            model = build_run(self.folder, self.preset, weights, kind="latest", step=latest)
            self._model = model
        return model

    def forget_model(self) -> None:
        """Drop the model of a run whose training has ended."""
        self._model = None

    def seconds_in_training(self) -> float:
        """Return for how long its worker has trained it; 0 while it is queued."""
        return 0.0 if self.started_at is None else time.monotonic() - self.started_at

    def latest_weights(self) -> tuple[int, dict[str, torch.Tensor]]:
        """Return the latest copy of the weights, which is never written to again, with its step.

        Raises:
            RunError: there is no copy yet.
        """
        latest = self._weights
        if latest is None:
            raise RunError(f"run={self.folder.name!r} has no weights yet; it is {self.info.status}")
        step, weights = latest
        if isinstance(weights, bytes):  # from another process, read when they are first needed
            weights = load(weights)
            if self._weights is latest:
                self._weights = step, weights
        return step, weights

    def train(self, threads: int, device: str, inference_priority: InferencePriority) -> None:
        """Train in this thread to the end or until stopped.

        Args:
            threads: torch threads for a new run; a resumed one keeps its own number, which bit-exactness requires.
            device: "cpu", "cuda" or "mps".
            inference_priority: requests to wait for between two updates.
        """
        self.started_at = time.monotonic()
        torch.set_num_threads(threads)
        with training(self.folder, device=device, command=PAGE, is_locked=True) as run:
            self._history, self._replay, self._weights_by_step = run.history, run.replay, run.weights_by_step
            for event in run:
                self._update(event, run.state)
                inference_priority.wait_for_inference()
                if isinstance(event, StepEvent) and self.stop.is_set():
                    break
        self.info = run.info

    def follow(self, process: TrainingProcess, look_around: Callable[[], None] = lambda: None) -> None:
        """Follow a process that trains the run, to its end or until stopped.

        Args:
            look_around: called a few times a second.

        Raises:
            TrainingProcessError: the process ended early, or the training raised an exception.
        """
        self.started_at = time.monotonic()
        told = False
        try:
            while True:
                message = process.receive(seconds=SECONDS_BETWEEN_LOOKS)
                if self.stop.is_set() and not told:
                    process.stop()
                    told = True
                look_around()
                if isinstance(message, Ended):
                    self.info = message.info
                    return
                self._take(message)
        finally:
            process.close()

    def steps_per_second(self) -> float | None:
        """Return the step rate over the last seconds; None until there are two points in time to compare."""
        times = list(self._times)
        if len(times) < 2 or times[-1][0] == times[0][0]:
            return None
        return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])

    def _update(self, event: Event, state: TrainingState) -> None:
        """Publish the state after an event."""
        now = time.monotonic()
        if isinstance(event, StepEvent):
            self._note_step(event.step)
        self._set_info(info_fields(state))
        if isinstance(event, EvaluationEvent) or now - self._copied_at > SECONDS_BETWEEN_COPIES:
            self._weights = state.step, clone_weights(state.model)
            self._copied_at = now

    def _take(self, message: Message | None) -> None:
        """Publish what a process has sent."""
        if isinstance(message, Started):
            self.history.rewind(message.step, evaluated_step=message.evaluated_step)
            self.replay.rewind(message.evaluated_step)
            self.weights_by_step.rewind(message.evaluated_step)
        elif isinstance(message, Update):
            for event in message.events:
                self.history.add(event)
            for step, weights in message.kept:  # before the snapshot, which says that they are there
                self.weights_by_step.add(step, load(weights))
            for snapshot in message.snapshots:
                self.replay.add(snapshot)
            self._weights = message.weights or self._weights
            self._note_step(message.fields["step"])
            self._set_info(message.fields)
        elif isinstance(message, Logged):
            logging.getLogger(message.record.name).handle(message.record)
        elif isinstance(message, Failed):
            error = TrainingProcessError(message.message)
            error.add_note(message.trace)
            raise error

    def _note_step(self, step: int) -> None:
        """Note when a step was completed."""
        now = time.monotonic()
        self._times.append((now, step))
        while now - self._times[0][0] > RATE_WINDOW_SECONDS and len(self._times) > 2:
            self._times.popleft()

    def _set_info(self, fields: dict[str, Any]) -> None:
        status: Status = "stopping" if self.stop.is_set() else "training"
        if self.has_made_way and not fields["message"]:
            fields = fields | {"message": MADE_WAY}
        self.info = self.info.model_copy(update={"status": status} | fields)
