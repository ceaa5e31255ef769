"""Write a training run to its folder: metrics, best weights, and the state to resume from."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from core.config import preset_to_yaml
from core.evaluation.accuracy import Evaluation
from core.evaluation.headline import bleu_name_of, headline_of
from core.interpret.health import Health, HealthTaker
from core.interpret.snapshots import SnapshotTaker, is_snapshot_step
from core.models import count_parameters
from core.runs.folder import RunError, RunFolder, UnsavedError
from core.runs.info import ACTIVE, Provenance, RunQuality, StartingPoint, Status, ValidationFigures
from core.runs.metrics_file import MetricsFile
from core.runs.provenance import begin_session, with_session
from core.runs.replay import Replay
from core.runs.training_state import clone_weights
from core.runs.weights_by_step import WeightsByStep, steps_to_keep
from core.storage.error_messages import explain_error, is_machine_fault, shown
from core.storage.tensor_file import save_weights
from core.tasks import Task
from core.tasks.vocabularies import token_facts
from core.training.checkpoint import save_state
from core.training.history import History
from core.training.loop import EndEvent, EvaluationEvent, Event
from core.training.nan_check import all_finite
from core.training.state import TrainingState

MIN_SECONDS_BETWEEN_SAVES = 5.0
MIN_SECONDS_BETWEEN_FLUSHES = 0.5
_log = logging.getLogger(__name__)


class Recorder:
    """Writes one run's training events to its folder. The caller must hold the folder's lock.

    Construction loads what the folder has of the steps up to ``state.step``, deletes the metrics of later ones, and
    sets the run's status to "training". During training, a full disk or a folder that cannot be written to does not end
    the run: ``state.notice`` reports the error, and the write is retried. Only the final write, in ``end``, must
    succeed.

    Args:
        folder: the run's folder, created by ``RunFolder.create``.
        state: the training state, which the training loop updates; its ``notice`` is set if a write fails.
        with_replay: whether to take attention snapshots, and to keep the weights of some of them.
        command: what started the training, see ``TrainingSession``.

    Attributes:
        history: metrics by step, growing.
        replay: attention snapshots, growing.
        weights_by_step: weights at a few training steps, growing.
        info: status and metrics as last written to ``run.json``.

    Raises:
        OSError: ``metrics.jsonl`` or ``run.json`` cannot be written during construction.
        RunError: there is no such run, or its ``run.json`` is damaged.
    """

    def __init__(self, folder: RunFolder, state: TrainingState, *, with_replay: bool = True, command: str = "") -> None:
        self.folder, self.state = folder, state
        self.info = folder.read_info()
        self.history = History.load(folder.metrics, sha256=self.info.metrics_sha256)
        self.replay = Replay.load(folder.replay_file, state.preset.training.evaluate_every)
        self.weights_by_step = WeightsByStep.load(folder.weights_by_step_file)
        damaged = (self.history.damage, self.replay.damage, self.weights_by_step.damage)
        state.notice = "; ".join(filter(None, [state.notice, *damaged]))
        self.history.rewind(state.step, evaluated_step=state.evaluated_step)
        self.replay.rewind(state.evaluated_step)
        self.weights_by_step.rewind(state.evaluated_step)
        self._snapshot_taker = SnapshotTaker(state.task, state.model) if with_replay else None
        if self._snapshot_taker:
            self._health_taker = HealthTaker(state.task, state.model, self._snapshot_taker.pairs)
        self._steps_to_keep = _steps_to_keep(state) if self._snapshot_taker and self._snapshot_taker.inputs else ()
        self._earlier_sessions = self.info.provenance
        self._session = begin_session(
            command=command,
            step=state.step,
            device=state.generator.device.type,
            processes=state.process_group.world_size,
        )
        self._unsaved_best: tuple[dict[str, torch.Tensor], dict[str, Any]] | None = None
        self._last_save = self._last_flush = time.monotonic()
        self._saved_step = state.step
        self._base_notice = state.notice
        self._failed_writes: set[Callable[[], None]] = set()
        self._metrics = MetricsFile(folder.metrics, self.history)
        self._write_info("training")

    def record(self, event: Event) -> None:
        """Record one event: add its metrics to the history, and write files if enough time has passed.

        Metrics are appended to the file at most every ``MIN_SECONDS_BETWEEN_FLUSHES``. Best weights, snapshots and the
        training state are saved at evaluations, at most every ``MIN_SECONDS_BETWEEN_SAVES``. An ``EndEvent`` calls
        ``end``.

        Raises:
            RunError: the event is an ``EndEvent``, and the folder cannot be written to.
        """
        if isinstance(event, EndEvent):
            self.end("finished" if event.reason == "finished" else "failed", event.message)
            return
        self._metrics.add(event)
        if isinstance(event, EvaluationEvent):
            if event.is_best:
                self._unsaved_best = (
                    clone_weights(self.state.model),
                    _facts(event, self.state, self._provenance(), self.info.start),
                )
            if event.step in self._steps_to_keep:  # before its snapshot, which says that the weights are there
                self.weights_by_step.add(event.step, clone_weights(self.state.model))
            if self._snapshot_taker and self._is_snapshot_step(event.step):
                snapshot = self._snapshot_taker.snapshot(self.state.model, event.step)
                self.replay.add(replace(snapshot, health=self._health(event)))
        if isinstance(event, EvaluationEvent) and time.monotonic() - self._last_save > MIN_SECONDS_BETWEEN_SAVES:
            self._try(self._save)
        elif time.monotonic() - self._last_flush > MIN_SECONDS_BETWEEN_FLUSHES:
            self._try(self._flush)

    def stop(self, reason: str = "") -> None:
        """Write everything of a training that is stopped before its end; RunError as for ``end``.

        Args:
            reason: appended to the notice that the state had before any write failed.
        """
        self.end("stopped", "; ".join(filter(None, [self._base_notice, reason])) if reason else "")

    def end(self, status: Status, message: str = "") -> None:
        """Write everything and the run's final status.

        Args:
            message: reason for the status; "" keeps the notice that the state had before any write failed.

        Raises:
            UnsavedError: the folder cannot be written to.
        """
        self.state.notice = self._base_notice
        try:
            self._save(status, message)
        except OSError as error:
            raise UnsavedError(
                f"{self._failure_message(error)}; {message or 'nothing after that step can be resumed'}"
            ) from error

    def _health(self, event: EvaluationEvent) -> Health | None:
        """Measure the health of the model, and keep its attention for the next snapshot in the training state."""
        heads, self.state.snapshot_rows = self._health_taker.measure(self.state.model, self.state.snapshot_rows)
        norms, perplexity = self.state.update_norms, event.evaluation.perplexity
        if heads is None:
            return None
        return Health(
            perplexity=perplexity if math.isfinite(perplexity) else None,
            gradient_norm=dict(norms.gradient_norm) if norms else None,
            update_size=norms.update_size if norms else None,
            heads=heads,
        )

    def _is_snapshot_step(self, step: int) -> bool:
        training = self.state.preset.training
        return step == training.steps or is_snapshot_step(step, every=training.evaluate_every)

    def _try(self, write: Callable[[], None]) -> None:
        """Write, or report the failure in the state's notice."""
        try:
            write()
        except OSError as error:
            self.state.notice = "; ".join(filter(None, [self._base_notice, self._failure_message(error)]))
            if not self._failed_writes:
                _log.warning("%s: %s", self.folder.path, self.state.notice)
            self._failed_writes.add(write)
            self._last_save = self._last_flush = time.monotonic()  # wait before the next attempt
        else:
            self._failed_writes -= {self._save, self._flush} if write == self._save else {write}  # a save also flushes
            if not self._failed_writes:
                self.state.notice = self._base_notice

    def _failure_message(self, error: OSError) -> str:
        reason = f"{type(error).__name__}: {error.strerror or error}"
        message = f"step {self.state.step} could not be saved ({reason}); the last saved step is {self._saved_step}"
        return f"{message}; {explain_error(error)}" if is_machine_fault(error) else message

    def _save(self, status: Status = "training", message: str = "") -> None:
        if self._unsaved_best:
            save_weights(self.folder.best, *self._unsaved_best)
            self._unsaved_best = None
        self._flush(max_lines_per_row=2 if status == "training" else 1)
        self.replay.save(self.folder.replay_file)  # before the state, which must not be ahead of it
        self.weights_by_step.save(self.folder.weights_by_step_file)  # as the replay
        if all_finite(self.state.model):  # otherwise resume from the last finite state
            save_state(self.folder.last, self.state)
            self._saved_step = self.state.step
        self._write_info(status, message or self._base_notice)
        self._last_save = time.monotonic()

    def _flush(self, max_lines_per_row: int = 2) -> None:
        self._metrics.flush(max_lines_per_row)
        self._restore_preset()
        self._last_flush = time.monotonic()

    def _restore_preset(self) -> None:
        """Write ``preset.yaml`` again if it was deleted during training: without it the run could not be opened."""
        if self.folder.restore_preset(self.state.preset):
            note = "preset.yaml was deleted during training and has been restored; nothing needs to be done"
            self.state.notice = self._base_notice = "; ".join(filter(None, [self._base_notice, note]))

    def _write_info(self, status: Status, message: str = "") -> None:
        state = self.state
        self.info = self.info.model_copy(
            update={
                "status": status,
                "message": message,
                "parameters": count_parameters(state.model),
                "step": state.step,
                "best_step": state.best_step if state.best_step >= 0 else None,
                **evaluation_fields(state.last_evaluation, state.task),
                "validation": _validation_figures(self.history.evaluation_at(state.best_step)),
                "sequences_seen": state.sequences_seen,
                "seconds": round(state.seconds, 3),
                "provenance": self._provenance(),
                "metrics_sha256": None if status in ACTIVE else self._metrics.sha256(),
            }
        )
        self.folder.write_info(self.info)

    def _provenance(self) -> Provenance:
        """Return the sessions of the run so far, this one last."""
        return with_session(self._earlier_sessions, self._session)


@contextmanager
def mark_failed(folder: RunFolder) -> Iterator[None]:
    """If an exception leaves the block, mark the run failed with the reason, and raise the exception again.

    Ctrl+C marks a run that has not ended interrupted: in a notebook, its process lives on. The caller must hold the
    folder's lock.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        message, is_failure = shown(error), isinstance(error, Exception)
        try:
            info = folder.read_info()
            if is_failure or info.status in ACTIVE:
                fields = {"status": "failed" if is_failure else "interrupted", "message": message}
                folder.write_info(info.model_copy(update=fields))
                if not is_failure:
                    error.add_note(f"run={folder.name!r} is interrupted; training() resumes it from its last save")
        except (OSError, RunError) as reason:  # for example because of the full disk that was the reason
            _log.error("%s: cannot be marked failed (%s): %s", folder.path, reason, message)
        raise


def evaluation_fields(evaluation: Evaluation | None, task: Task) -> dict[str, Any]:
    """Return the fields of ``RunInfo`` that an evaluation changes."""
    return {
        "exact_match": evaluation.exact_match if evaluation else None,
        "train_token_accuracy": evaluation.train_token_accuracy if evaluation else None,
        "train_exact_match": evaluation.train_exact_match if evaluation else None,
        "quality": run_quality(evaluation, task),
        "headline": evaluation.figures(task) if evaluation else (),
        "without_bleu": headline_of(task).without_bleu,
    }


def run_quality(evaluation: Evaluation | None, task: Task) -> RunQuality | None:
    """Return BLEU and chrF of an evaluation; None if they were not measured."""
    if evaluation is None or evaluation.bleu is None or evaluation.chrf is None or task.bleu_tokenizer is None:
        return None
    name = bleu_name_of(task.bleu_tokenizer)
    return RunQuality(bleu=round(evaluation.bleu, 4), chrf=round(evaluation.chrf, 4), bleu_name=name)


def _validation_figures(row: Mapping[str, float | None] | None) -> ValidationFigures | None:
    """Return an evaluation as ``run.json`` keeps it; None if there is none, or a loss is not finite."""
    if row is None or not all(math.isfinite(value) for value in row.values() if value is not None):
        return None
    return ValidationFigures.model_validate(row)


def _steps_to_keep(state: TrainingState) -> tuple[int, ...]:
    """Return the training steps at which a run keeps its weights."""
    training = state.preset.training
    num_bytes = sum(tensor.nbytes for tensor in state.model.state_dict().values())
    return steps_to_keep(training.steps, every=training.evaluate_every, num_bytes=num_bytes)


def _facts(
    event: EvaluationEvent, state: TrainingState, provenance: Provenance, start: StartingPoint | None
) -> dict[str, Any]:
    """Return the metadata of the best weights; preset and tokenizers make the file self-contained."""
    facts: dict[str, Any] = {
        "step": event.step,
        "validation_loss": event.evaluation.loss,
        "exact_match": event.evaluation.exact_match,
        "preset": preset_to_yaml(state.preset),
        "provenance": [session.model_dump(mode="json") for session in provenance],
    }
    if event.evaluation.confidence_threshold is not None:
        facts["confidence_threshold"] = event.evaluation.confidence_threshold
    if quality := run_quality(event.evaluation, state.task):
        facts["quality"] = quality.model_dump()
    if start is not None:
        facts["start"] = start.model_dump()
    facts["headline"] = [figure.model_dump() for figure in event.evaluation.figures(state.task)]
    return facts | token_facts(state.task, state.preset.task)
