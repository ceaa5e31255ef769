"""A run that this process trains in a thread, and what others may see of it meanwhile."""

import threading
import time
from collections import deque

import torch
from filelock import FileLock

from core.config import Preset
from core.runs import RunFolder, Status
from core.runs.recorder import mark_failed, train_recorded
from core.runs.replay import Replay
from core.runs.training_state import clone_weights, resume_state
from core.server.inference_priority import InferencePriority
from core.training.history import History
from core.training.loop import EvaluationEvent, Event, StepEvent
from core.training.state import TrainingState

SECONDS_BETWEEN_COPIES = 0.5
RATE_WINDOW_SECONDS = 5.0


class LiveRun:
    """One run from the moment it is queued until its thread ends; ``lock`` is held all the while.

    Attributes:
        owner: whose it is, where that is kept.
        reason: why it was asked to stop, if that was not its owner's wish.
        began: when its thread began to train it, by ``time.monotonic``; None while it waits.
        stop: set it to ask the run to stop after its present step.
        info: status and figures as of the last event.
        history: figures by step, growing.
        replay: attention over the training, growing.
        loaded: the step of the latest copy of the weights, and the copy, which is never written to again; None
            before the first.
    """

    def __init__(self, folder: RunFolder, preset: Preset, lock: FileLock, owner: str | None = None) -> None:
        self.folder, self.preset, self.lock, self.owner = folder, preset, lock, owner
        self.stop = threading.Event()
        self.reason = ""
        self.began: float | None = None
        self.info = folder.info()
        self.history = History.load(folder.metrics, preset.training.steps)
        self.replay = Replay.load(folder.replay, preset.training.evaluate_every)
        self.latest_weights: tuple[int, dict[str, torch.Tensor]] | None = None
        self._copied_at = 0.0
        self._times: deque[tuple[float, int]] = deque()

    def train(self, threads: int, inference_priority: InferencePriority) -> None:
        """Train to the end or until stopped.

        Args:
            threads: torch threads for a new run; a continued one keeps its own number, or it would not continue
                bit for bit.
            inference_priority: what it waits for between two updates.
        """
        self.began = time.monotonic()
        torch.set_num_threads(threads)
        with mark_failed(self.folder):
            state = resume_state(self.folder)
        torch.set_num_threads(state.threads)
        self.history.rewind(state.step, evaluated_step=state.evaluated_step)

        def watch(event: Event) -> None:
            self._watch(event, state)
            inference_priority.wait_for_inference()

        self.info = train_recorded(
            self.folder,
            state,
            self.history,
            replay=self.replay,
            should_stop=self.stop.is_set,
            on_event=watch,
        )

    def steps_per_second(self) -> float | None:
        """Return the rate over the last seconds, or None before there are two moments to compare."""
        times = list(self._times)
        if len(times) < 2 or times[-1][0] == times[0][0]:
            return None
        return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])

    def _watch(self, event: Event, state: TrainingState) -> None:
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
                "best_step": state.best_step if state.best_step >= 0 else None,
                "sequences_seen": state.sequences_seen,
                "seconds": state.seconds,
            }
        )
        if isinstance(event, EvaluationEvent) or now - self._copied_at > SECONDS_BETWEEN_COPIES:
            self.latest_weights = state.step, clone_weights(state.model)
            self._copied_at = now
