"""Keep what training tells: its figures, its best weights and the state to continue from, in the run's folder."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from core.checkpoint import load_state, save_state, save_weights
from core.divergence import all_finite
from core.history import History
from core.models import count_parameters
from core.replay import Replay
from core.run_folder import RunFolder, RunInfo
from core.training import EndEvent, EvaluationEvent, Event, StepEvent, TrainingState, new_state, train

SECONDS_BETWEEN_SAVES = 5.0
SECONDS_BETWEEN_FLUSHES = 0.5


class Recorder:
    """Writes one run's events to its folder; whoever has it holds the folder's lock."""

    def __init__(self, folder: RunFolder, state: TrainingState, history: History, replay: Replay | None = None) -> None:
        self.folder, self.state, self.history = folder, state, history
        self.replay = replay or Replay.load(folder.replay, state.preset.training.evaluate_every)
        self.replay.rewind(state.evaluated_step)
        self._info = folder.info()
        self._lines: list[str] = []
        self._best: tuple[dict[str, torch.Tensor], dict] | None = None
        self._saved = self._flushed = time.monotonic()
        history.save(folder.metrics)
        self._write_info("training")

    def keep(self, event: Event) -> None:
        """Keep one event: figures at once, files every few seconds."""
        if isinstance(event, EndEvent):
            self.end("finished" if event.reason == "finished" else "failed", event.message)
            return
        line = self.history.add(event)
        if line:
            self._lines.append(line)
        if isinstance(event, EvaluationEvent) and event.is_best:
            self._best = (copy_of_weights(self.state.model), _facts(event))
        if isinstance(event, EvaluationEvent) and event.snapshot:
            self.replay.add(event.snapshot)
        if isinstance(event, EvaluationEvent) and time.monotonic() - self._saved > SECONDS_BETWEEN_SAVES:
            self._save("training")
        elif time.monotonic() - self._flushed > SECONDS_BETWEEN_FLUSHES:
            self._flush()

    def end(self, status: str, message: str = "") -> None:
        """Write everything and the run's last status."""
        self._save(status, message)

    def _save(self, status: str, message: str = "") -> None:
        if self._best:
            save_weights(self.folder.best, *self._best)
            self._best = None
        self._flush()
        self.replay.save(self.folder.replay)  # before the state, which must not be ahead of it
        if all_finite(self.state.model):  # else there is nothing to continue from but what was saved before
            save_state(self.folder.last, self.state)
        self._write_info(status, message)
        self._saved = time.monotonic()

    def _flush(self) -> None:
        with self.folder.metrics.open("a") as file:
            file.writelines(f"{line}\n" for line in self._lines)
        self._lines.clear()
        self._flushed = time.monotonic()

    def _write_info(self, status: str, message: str = "") -> None:
        state = self.state
        self._info = self._info.model_copy(
            update={
                "status": status,
                "message": message,
                "parameters": count_parameters(state.model),
                "step": state.step,
                "best_step": state.best_step if state.best_step >= 0 else None,
                "exact_match": state.last_evaluation.exact_match if state.last_evaluation else None,
                "sequences_seen": state.sequences_seen,
                "seconds": round(state.seconds, 3),
            }
        )
        self.folder.write_info(self._info)


def train_recorded(
    folder: RunFolder,
    state: TrainingState,
    history: History,
    *,
    replay: Replay | None = None,
    should_stop: Callable[[], bool],
    on_event: Callable[[Event], None],
) -> RunInfo:
    """Train from ``state`` to the end, or until asked to stop, keeping everything in the folder.

    Args:
        replay: what to add snapshots to; None goes on with those in the folder.
        should_stop: asked after every step.
        on_event: told every event, after it was kept.

    Returns:
        The run's last status and figures. An exception leaves the run marked failed, and is raised on.
    """
    recorder = Recorder(folder, state, history, replay)
    with failure_noted(folder):
        for event in train(state):
            recorder.keep(event)
            on_event(event)
            if isinstance(event, StepEvent) and should_stop():
                recorder.end("stopped")
                break
    return folder.info()


@contextmanager
def failure_noted(folder: RunFolder) -> Iterator[None]:
    """Mark the run failed, with the reason, if an exception leaves the block; it is raised on."""
    try:
        yield
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        folder.write_info(folder.info().model_copy(update={"status": "failed", "message": message}))
        raise


def continued_state(folder: RunFolder, *, device: str = "cpu") -> TrainingState:
    """Return the state a run continues from, on a device: the last one saved, or a new one."""
    preset = folder.preset()
    return load_state(folder.last, preset, device=device) if folder.last.exists() else new_state(preset, device=device)


def copy_of_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights as they are now; later updates do not change the copy."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _facts(event: EvaluationEvent) -> dict:
    figures = event.evaluation
    return {"step": event.step, "validation_loss": figures.loss, "exact_match": figures.exact_match}
