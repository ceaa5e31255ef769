"""A run that a worker thread trains, and its state as other threads may read it."""

import threading
import time
from collections import deque

import torch
from filelock import FileLock

from core.config import Preset
from core.runs import RunError, RunFolder, Status
from core.runs.provenance import PAGE
from core.runs.recorder import mark_failed, run_quality, train_recorded
from core.runs.replay import Replay
from core.runs.training_state import clone_weights, resume_state
from core.runs.weights_by_step import WeightsByStep
from core.server.inference_priority import InferencePriority
from core.server.queue import NO_POOL
from core.training.history import History
from core.training.loop import EvaluationEvent, Event, StepEvent
from core.training.state import TrainingState

SECONDS_BETWEEN_COPIES = 0.5
RATE_WINDOW_SECONDS = 5.0


class LiveRun:
    """One run from the moment it is queued until its worker ends; ``lock`` is held all that time.

    Attributes:
        owner: its owner as stored on disk, see ``ownership.owner_of``.
        pool: what it shares a quota and a turn in the queue with, see ``Class.pool``; "" outside of classes.
        reason: why it was stopped, if its owner did not ask for that.
        started_at: ``time.monotonic()`` when its worker began to train it; None while it is queued.
        stop: event that asks the run to stop after the current step.
        info: status and metrics as of the last event.
        history: metrics by step, growing.
        replay: attention snapshots, growing.
        weights_by_step: weights at a few training steps, growing.
    """

    def __init__(
        self, folder: RunFolder, preset: Preset, lock: FileLock, owner: str | None = None, pool: str = NO_POOL
    ) -> None:
        self.folder, self.preset, self.lock, self.owner, self.pool = folder, preset, lock, owner, pool
        self.stop = threading.Event()
        self.reason = ""
        self.started_at: float | None = None
        self.info = folder.info()
        self.history = History.load(folder.metrics)
        self.replay = Replay.load(folder.replay, preset.training.evaluate_every)
        self.weights_by_step = WeightsByStep.load(folder.weights_by_step)
        self._weights: tuple[int, dict[str, torch.Tensor]] | None = None
        self._copied_at = 0.0
        self._times: deque[tuple[float, int]] = deque()

    @property
    def has_weights(self) -> bool:
        """Whether there is a copy of the weights yet."""
        return self._weights is not None

    def latest_weights(self) -> tuple[int, dict[str, torch.Tensor]]:
        """Return the latest copy of the weights, which is never written to again, with its step.

        Raises:
            RunError: there is no copy yet.
        """
        if self._weights is None:
            raise RunError(f"run={self.folder.name!r} has no weights yet; it is {self.info.status}")
        return self._weights

    def train(self, threads: int, device: str, inference_priority: InferencePriority) -> None:
        """Train to the end or until stopped.

        Args:
            threads: torch threads for a new run; a resumed one keeps its own number, which bit-exactness requires.
            device: "cpu", "cuda" or "mps".
            inference_priority: requests to wait for between two updates.
        """
        self.started_at = time.monotonic()
        torch.set_num_threads(threads)
        with mark_failed(self.folder):
            state = resume_state(self.folder, device=device)
        torch.set_num_threads(state.threads)
        self.history.rewind(state.step, evaluated_step=state.evaluated_step)

        def on_event(event: Event) -> None:
            self._update(event, state)
            inference_priority.wait_for_inference()

        self.info = train_recorded(
            self.folder,
            state,
            self.history,
            replay=self.replay,
            weights_by_step=self.weights_by_step,
            should_stop=self.stop.is_set,
            on_event=on_event,
            command=PAGE,
        )

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
            self._times.append((now, event.step))
            while now - self._times[0][0] > RATE_WINDOW_SECONDS and len(self._times) > 2:
                self._times.popleft()
        status: Status = "stopping" if self.stop.is_set() else "training"
        self.info = self.info.model_copy(
            update={
                "status": status,
                "message": state.notice,
                "step": state.step,
                "exact_match": state.last_evaluation.exact_match if state.last_evaluation else None,
                "quality": run_quality(state.last_evaluation, state.task),
                "best_step": state.best_step if state.best_step >= 0 else None,
                "sequences_seen": state.sequences_seen,
                "seconds": state.seconds,
            }
        )
        if isinstance(event, EvaluationEvent) or now - self._copied_at > SECONDS_BETWEEN_COPIES:
            self._weights = state.step, clone_weights(state.model)
            self._copied_at = now
