"""Keep what training tells: its figures, its best weights and the state to continue from, in the run's folder."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from core.config import Preset, preset_to_yaml
from core.interpret.snapshots import SnapshotTaker, is_snapshot_step
from core.models import count_parameters
from core.runs.folder import RunError, RunFolder, RunInfo
from core.runs.replay import Replay
from core.storage.error_messages import explain_error, is_machine_fault
from core.storage.errors import LabError
from core.storage.tensor_file import previous_of, read_or_previous
from core.teaching.bugs import new_state
from core.training.checkpoint import load_weights, restore_state, save_state, save_weights
from core.training.history import History
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent, train
from core.training.nan_check import all_finite
from core.training.state import TrainingState

SECONDS_BETWEEN_SAVES = 5.0
SECONDS_BETWEEN_FLUSHES = 0.5
_log = logging.getLogger(__name__)


class Recorder:
    """Writes one run's events to its folder; whoever has it holds the folder's lock.

    A disk that is full, or a folder that cannot be written to, does not end the training: the state's ``notice`` says
    so, and writing is tried again. Only the end of the run must be written.
    """

    def __init__(
        self,
        folder: RunFolder,
        state: TrainingState,
        history: History,
        replay: Replay | None = None,
        *,
        with_replay: bool = True,
    ) -> None:
        self.folder, self.state, self.history = folder, state, history
        self.replay = replay or Replay.load(folder.replay, state.preset.training.evaluate_every)
        self.replay.rewind(state.evaluated_step)
        self._snapshot_taker = SnapshotTaker(state.task, state.model) if with_replay else None
        self._info = folder.info()
        self._lines: list[str] = []
        self._best: tuple[dict[str, torch.Tensor], dict] | None = None
        self._saved = self._flushed = time.monotonic()
        self._saved_step = state.step
        self._usual_notice = state.notice
        self._figures_are_whole = True
        self._failed: Callable[[], None] | None = None
        history.save(folder.metrics)
        self._write_info("training")

    def keep(self, event: Event) -> None:
        """Keep one event: figures at once, files every few seconds.

        Raises:
            RunError: it was the last event, and the folder cannot be written to.
        """
        if isinstance(event, EndEvent):
            self.end("finished" if event.reason == "finished" else "failed", event.message)
            return
        line = self.history.add(event)
        if line:
            self._lines.append(line)
        if isinstance(event, EvaluationEvent) and event.is_best:
            self._best = (copy_of_weights(self.state.model), _facts(event, self.state))
        if isinstance(event, EvaluationEvent) and self._snapshot_taker and self._is_replayed(event.step):
            self.replay.add(self._snapshot_taker.snapshot(self.state.model, event.step))
        if isinstance(event, EvaluationEvent) and time.monotonic() - self._saved > SECONDS_BETWEEN_SAVES:
            self._try(self._save)
        elif time.monotonic() - self._flushed > SECONDS_BETWEEN_FLUSHES:
            self._try(self._flush)

    def _is_replayed(self, step: int) -> bool:
        training = self.state.preset.training
        return step == training.steps or is_snapshot_step(step, every=training.evaluate_every)

    def end(self, status: str, message: str = "") -> None:
        """Write everything and the run's last status; RunError if the folder cannot be written to."""
        self.state.notice = self._usual_notice
        try:
            self._save(status, message)
        except OSError as error:
            raise RunError(
                f"{self._not_saved(error)}; {message or 'nothing later than that can be resumed'}"
            ) from error

    def _try(self, write: Callable[[], None]) -> None:
        """Write, or say in the state's notice that it failed."""
        try:
            write()
        except OSError as error:
            self.state.notice = "; ".join(filter(None, [self._usual_notice, self._not_saved(error)]))
            if self._failed is None:
                _log.warning("%s: %s", self.folder.path, self.state.notice)
            self._failed = self._save if self._failed == self._save else write
            self._saved = self._flushed = time.monotonic()  # not again at once
        else:
            if write in (self._save, self._failed):
                self.state.notice, self._failed = self._usual_notice, None

    def _not_saved(self, error: OSError) -> str:
        why = f"{type(error).__name__}: {error.strerror or error}"
        said = f"step {self.state.step} could not be saved ({why}); what is saved is step {self._saved_step}"
        return f"{said}; {explain_error(error)}" if is_machine_fault(error) else said

    def _save(self, status: str = "training", message: str = "") -> None:
        if self._best:
            save_weights(self.folder.best, *self._best)
            self._best = None
        self._flush()
        self.replay.save(self.folder.replay)  # before the state, which must not be ahead of it
        if all_finite(self.state.model):  # else there is nothing to continue from but what was saved before
            save_state(self.folder.last, self.state)
            self._saved_step = self.state.step
        self._write_info(status, message or self._usual_notice)
        self._saved = time.monotonic()

    def _flush(self) -> None:
        if self._figures_are_whole:
            self._figures_are_whole = False  # until all lines are there: some may be before it fails
            with self.folder.metrics.open("a") as file:
                file.writelines(f"{line}\n" for line in self._lines)
        else:
            self.history.save(self.folder.metrics)
        self._figures_are_whole = True
        self._lines.clear()
        self._keep_preset()
        self._flushed = time.monotonic()

    def _keep_preset(self) -> None:
        """Write ``preset.yaml`` again if somebody deleted it, and say so: without it, the run could not be opened."""
        if not self.folder.has_preset():
            self.folder.write_preset(self.state.preset)
            said = "preset.yaml was deleted meanwhile; it was written again, so nothing is to be done"
            self.state.notice = self._usual_notice = "; ".join(filter(None, [self._usual_notice, said]))

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
    if torch.get_num_threads() != state.threads and not state.notice:
        state.notice = f"begun with {state.threads} torch threads, now {torch.get_num_threads()}: not bit-exact"
    with failure_noted(folder):
        recorder = Recorder(folder, state, history, replay)
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
        message = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
        try:
            folder.write_info(folder.info().model_copy(update={"status": "failed", "message": message}))
        except (OSError, RunError):  # such as the full disk that was the reason
            _log.exception("%s: cannot be marked failed: %s", folder.path, message)
        raise


def continued_state(folder: RunFolder, *, device: str = "cpu") -> TrainingState:
    """Return the state a run continues from, on a device: the last one saved, or a new one.

    Where the last one is damaged, it is the one saved before it; the state's ``notice`` says so.

    Raises:
        CheckpointError: there are saved states, but none can be used.
    """
    preset = folder.preset()
    if not folder.last.exists() and not previous_of(folder.last).exists():
        return new_state(preset, device=device, pairs=folder.pairs)
    state, note = read_or_previous(
        folder.last, lambda path: load_state(path, preset, device=device, pairs=folder.pairs)
    )
    state.notice = "; ".join(filter(None, [note, state.notice]))
    return state


def load_state(path: Path, preset: Preset, *, device: str = "cpu", pairs: Path | None = None) -> TrainingState:
    """Build a run's training state and fill it from a file; see ``core.training.checkpoint.restore_state``."""
    return restore_state(path, new_state(preset, device=device, pairs=pairs))


def load_best(folder: RunFolder, model: torch.nn.Module) -> dict:
    """Load a run's best weights into a model and return the facts saved with them.

    Where the file is damaged, the weights are those that were the best before; the run's message says so.

    Raises:
        CheckpointError: there are none that can be used.
    """
    facts, note = read_or_previous(folder.best, lambda path: load_weights(path, model))
    if note:
        _tell(folder, note)
    return facts


def kept_preset(folder: RunFolder) -> Preset:
    """Read a run's preset; where its file was deleted, write it again as the best weights have it, and say so.

    Raises:
        RunError: there is no such run, or its preset is damaged, or it was deleted and there are no weights.
    """
    was_there, preset = folder.has_preset(), folder.preset()
    if not was_there:
        note = "preset.yaml was deleted; it was written again as it is in best.safetensors, so nothing is to be done"
        _tell(folder, note, preset)
    return preset


def _tell(folder: RunFolder, note: str, preset: Preset | None = None) -> None:
    """Add a note to the run's message, unless it is there, or the run is not ours to write to.

    Args:
        preset: to be written too.
    """
    try:
        lock = folder.lock()
        try:
            if preset is not None:
                folder.write_preset(preset)
            info = folder.written_info()
            if note not in info.message:
                message = "; ".join(filter(None, [info.message, note]))
                folder.write_info(info.model_copy(update={"message": message}))
        finally:
            lock.release()
    except (OSError, RunError) as error:
        _log.info("%s: not noted in run.json: %s", folder.path, error)


def copy_of_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights as they are now; later updates do not change the copy."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _facts(event: EvaluationEvent, state: TrainingState) -> dict:
    """Return what is told of the best weights; with the preset, so that they need no other file."""
    figures = {"validation_loss": event.evaluation.loss, "exact_match": event.evaluation.exact_match}
    return {"step": event.step, **figures, "preset": preset_to_yaml(state.preset)}
