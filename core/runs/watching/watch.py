"""``lab.watch``: record a training by a user's own loop in a run folder, which the page follows live."""

import atexit
import json
import logging
import math
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from core.evaluation.headline import HeadlineFigure
from core.interpret.any_module.calling import Forward, ModelCall, checked_number, described, module_of
from core.interpret.any_module.kept_states import check_not_sharded
from core.interpret.any_module.tables import Vocab
from core.interpret.health_course import health_steps
from core.interpret.snapshots import is_snapshot_step
from core.models import count_parameters
from core.runs.folder import DEFAULT_ROOT, RunError, RunFolder
from core.runs.info import MAX_STEPS, RunInfo, Status
from core.runs.metrics_file import MetricsFile
from core.runs.provenance import begin_session, with_session
from core.runs.replay import Replay
from core.runs.run import Runs
from core.runs.watching.batch import WatchedBatch
from core.runs.watching.folders import created, preset_of, to_resume, with_interval
from core.runs.watching.pace import Pace, Spacing
from core.storage.atomic import write_atomically
from core.storage.error_messages import explain_error, short_repr, shown
from core.storage.errors import InputError
from core.teaching.doctor import Examination, check_health, diagnose
from core.training.history import History
from core.training.loop import EvaluationEvent, StepEvent

if TYPE_CHECKING:
    from core.runs.watching.lightning_callback import WatchCallback as LightningCallback
    from core.runs.watching.transformers_callback import WatchCallback as TransformersCallback

SECONDS_BETWEEN_FLUSHES, SECONDS_BETWEEN_INFOS, SECONDS_BETWEEN_MAPS = 0.5, 2.0, 5.0
NORM_SHARE = 0.003  # of the time of an update that measuring its gradient may take
ENDED: tuple[Status, ...] = ("finished", "stopped", "failed")
_log = logging.getLogger(__name__)
_open_watches: dict[Path, "Watch"] = {}  # of this process, by the path of the run


def watch(
    forward: Forward,
    batch: Sequence[torch.Tensor],
    *,
    name: str | None = None,
    root: str | Path = DEFAULT_ROOT,
    model: nn.Module | None = None,
    pad: int | None = None,
    src_vocab: Vocab | None = None,
    tgt_vocab: Vocab | None = None,
    batch_first: bool = True,
    optimizer: torch.optim.Optimizer | None = None,
    every: int | None = None,
    steps: int | None = None,
    resume: bool = False,
    step: int | None = None,
) -> "Watch":
    """Watch a training by your own loop: the page shows it as a run while it trains.

    The model computes the batch first, which raises what is wrong with it. Call ``step(loss)`` of the result after
    every update. The processes of a distributed training other than the first watch nothing.

    Args:
        forward: your model, called as ``forward(src, tgt_in)``, as by ``diagnose`` and ``attention``; or a function
            that adds masks. It returns logits (B, T, V).
        batch: ``(src, tgt_in, tgt_out)``, int64 (B, S), (B, T) and (B, T): a few pairs, the same throughout the
            training. Of a language model, called as ``forward(ids)``: ``(ids, targets)``, both (B, T). Targets of
            -100 do not count.
        name: of the run; None numbers it.
        root: the folder of runs.
        model: the module with the parameters, if ``forward`` is a function.
        pad: id of PAD, which does not count as a target; None if there is none.
        src_vocab, tgt_vocab: tokens by id, see ``attention``; without them, ids are shown.
        batch_first: False if ids are (S, B) and (T, B), and logits (T, B, V).
        optimizer: whose learning rate is recorded.
        every: updates between two evaluations of the batch; None evaluates as often as costs 1 % of the time.
        steps: updates that the training is to make; None if that is not known.
        resume: whether to go on with the run of this name, which must exist.
        step: updates that the model has made; None is 0, or the last one that the resumed run has recorded. What the
            run has recorded of later ones is deleted.

    Raises:
        InputError: the batch or a number cannot be used, the model does not return logits, or it is sharded by FSDP.
        RunError: there is a run of that name and ``resume`` is False, or there is none to resume; or another process,
            or a watch that was not closed, writes to it.
    """
    check_not_sharded(module_of(forward, model))
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_rank():
        return _NotWatching()
    every = None if every is None else checked_number("every", every, 1, MAX_STEPS)
    steps = None if steps is None else checked_number("steps", steps, 1, MAX_STEPS)
    step = None if step is None else checked_number("step", step, 0, MAX_STEPS)
    pad = None if pad is None else checked_number("pad", pad)
    if optimizer is not None and not hasattr(optimizer, "param_groups"):
        raise InputError(f"optimizer is {described(optimizer)}; it must be an optimizer of PyTorch")
    root = Runs(root).root
    while isinstance(forward, DistributedDataParallel | DataParallel):  # whose forward waits for the other processes
        forward = forward.module
    module = module_of(forward, model)
    call = ModelCall(forward, batch_first, () if pad is None else (pad,))
    watched = WatchedBatch(call, module, batch, pad=pad, src_vocab=src_vocab, tgt_vocab=tgt_vocab)
    watched.evaluate()  # before there is a folder
    if name is not None and (other := _open_watches.get(RunFolder(root, name).path)):
        raise RunError(
            f"run={name!r} is still watched by this program, at step {other.last_step:,}; call close() of that watch "
            "first, then pass resume=True to go on with the run, or choose another name"
        )
    if resume:
        folder = to_resume(root, name)
    else:
        folder = created(root, name, preset_of(forward, module, watched, every=every, steps=steps))
    try:
        return Watch(folder, call, module, watched, pad=pad, optimizer=optimizer, every=every, step=step)
    except BaseException:
        if not resume:  # otherwise an empty run would keep the name
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


class Watch:
    """A training that is watched, made by ``watch``. Leaving its ``with`` block, or the end of the program, closes it.

    Attributes:
        name: of the run.
        last_step: updates made so far.
        info: status and figures as last written.
    """

    last_step: int
    info: RunInfo
    _pace: Pace
    _metrics: MetricsFile
    _replay: Replay
    _is_closed: bool
    _evaluated: int
    _flushed: float
    _has_new_maps: bool

    def __init__(
        self,
        folder: RunFolder,
        call: ModelCall,
        model: nn.Module | None,
        batch: WatchedBatch,
        *,
        pad: int | None,
        optimizer: torch.optim.Optimizer | None,
        every: int | None,
        step: int | None,
    ) -> None:
        self._folder, self._call, self._model, self._batch = folder, call, model, batch
        self._pad, self._optimizer = pad, optimizer
        self._rate = math.nan
        self._lock = folder.lock()
        try:
            self._open(every, step)
        except BaseException:
            self._lock.release()
            raise
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it, and its wrapper takes no hooks
        self._hook = inner.register_step_pre_hook(lambda *_: self._note_rate()) if inner is not None else None
        atexit.register(self._at_exit)
        _open_watches[folder.path] = self

    def __repr__(self) -> str:
        return f"<Watch {self.name}, step {self.last_step}>"

    @property
    def name(self) -> str:
        """The run's name."""
        return self._folder.name

    def step(
        self,
        loss: torch.Tensor | float | None = None,
        *,
        step: int | None = None,
        learning_rate: float | None = None,
        gradient_norm: float | None = None,
    ) -> None:
        """Record an update that was just made, and evaluate the watched batch if it is time.

        Args:
            loss: of the update, a number or a tensor with one; None records none.
            step: updates made so far; None is one more than before. A step that was recorded can get its loss later.
            learning_rate: None is the one that the optimizer's last update used.
            gradient_norm: None measures the gradients that the parameters have now, if any, after clipping; where that
                takes long beside an update, not at every step. ``clip_grad_norm_`` returns the norm before clipping.

        Raises:
            InputError: the step is before the last one or not a whole number, or another value is not one number. The
                update is not recorded.
        """
        if self._is_closed:
            return
        number = self.last_step + 1 if step is None else checked_number("step", step, 0, MAX_STEPS)
        if number < self.last_step:
            raise InputError(f"step={number} must not be below {self.last_step}, the last step that was recorded")
        value = None if loss is None else _kept("loss", loss)
        rate = None if learning_rate is None else _kept("learning_rate", learning_rate)
        norm = None if gradient_norm is None else _kept("gradient_norm", gradient_norm)
        self._pace.begin()
        is_new, self.last_step = number > self.last_step, number
        if value is not None:
            rate = self._learning_rate() if rate is None else rate
            norm = self._gradient_norm() if norm is None else norm
            self._pending.append((number, value, rate, norm))
        if is_new and self._pace.is_due(number):
            self._evaluate()
        if time.perf_counter() - self._flushed > SECONDS_BETWEEN_FLUSHES:
            self._write(self._flush)
        self._pace.end()
        self._warn()

    def diagnose(self, *, bos: int | None = None, eos: int | None = None, **options: Any) -> Examination | None:
        """Examine the model on the watched batch, see ``lab.diagnose``; the page shows the findings with the run.

        Args:
            bos, eos: ids of these tokens, which a language model may lack.
            options: further arguments of ``lab.diagnose``, such as ``loss``, ``optimizer`` and ``decode``.

        Returns:
            The examination; None in a process that watches nothing.

        Raises:
            InputError: ``bos`` or ``eos`` is missing, or the sequences of a language model are too short.
        """
        batch = self._batch
        pad = eos if self._pad is None and batch.tgt_in is not None else self._pad
        src, tgt = _as_pairs(batch, eos if pad is None else pad)
        src, tgt = None if src is None else self._call.turned(src), self._call.turned(tgt)
        given: dict[str, Any] = {"model": self._model, "batch_first": self._call.batch_first, "step": self.last_step}
        found = diagnose(self._call.forward, src, tgt, pad=pad, bos=bos, eos=eos, **given | options)
        findings = (*found.findings, *check_health(health_steps(self._replay.snapshots())))
        found = Examination(found.name, found.step, findings, found.seconds)
        if not self._is_closed:
            content = json.dumps(found.as_data()).encode()
            self._write(lambda: write_atomically(self._folder.examination_file, content))
            self._warn()
        return found

    def close(self, status: Status = "finished", message: str = "") -> None:
        """Evaluate the batch once more, write everything, and let go of the run's folder.

        Args:
            status: "finished", "stopped" or "failed".
            message: the reason, which the page shows.

        Raises:
            InputError: ``status`` is none of these.
        """
        if self._is_closed:
            return
        if status not in ENDED:
            raise InputError(f"status={short_repr(status)} is not one of {', '.join(ENDED)}")
        try:
            self._write(self._flush)
            if self._evaluated != self.last_step and status == "finished":
                self._evaluate(is_last=True)
            self._notes += [str(message)] if message else []
            self._write(lambda: self._save(status))
        finally:
            self._is_closed = True
            _open_watches.pop(self._folder.path, None)
            if self._hook is not None:
                self._hook.remove()
            atexit.unregister(self._at_exit)
            self._lock.release()
        self._warn()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            status: Status = "failed" if isinstance(error, Exception) else "stopped"  # by Ctrl+C
            self.close(status, shown(error)[:300])

    def lightning(self) -> "LightningCallback":
        """Return a callback for Lightning's ``Trainer`` that calls ``step`` and ``close``."""
        from core.runs.watching.lightning_callback import WatchCallback

        return WatchCallback(self)

    def transformers(self) -> "TransformersCallback":
        """Return a callback for the ``Trainer`` of transformers; the loss is recorded as often as it logs."""
        from core.runs.watching.transformers_callback import WatchCallback

        return WatchCallback(self)

    # ---- opening

    def _open(self, every: int | None, step: int | None) -> None:
        folder = self._folder
        self.info = folder.read_info()
        preset = folder.read_preset()
        history = History.load(folder.metrics, sha256=self.info.metrics_sha256)
        self.last_step = max(self.info.step, *history.points()["step"], 0) if step is None else step
        has_chosen = preset.training.evaluate_every > 1
        self._pace = Pace(every or (preset.training.evaluate_every if has_chosen else None), is_fixed=every is not None)
        self._is_closed, self._notes, self._unsaid = False, list[str](), list[str]()
        self._say(self._batch.note)
        self._pending: list[tuple[int, torch.Tensor | float, torch.Tensor | float, torch.Tensor | float]] = []
        self._losses: list[float] = []  # since the last evaluation
        self._norm_every = 1
        history.rewind(self.last_step, evaluated_step=self.last_step - 1)  # this step is evaluated again below
        self._metrics = MetricsFile(folder.metrics, history)
        self._last_point = max(history.points()["step"], default=-1)
        self._replay = Replay.load(folder.replay_file, self._pace.every or 1)
        self._replay.rewind(self.last_step - 1)
        recorded = self._replay.snapshots()
        if recorded and recorded[-1].inputs != self._batch.inputs:
            self._replay = Replay(self._pace.every or 1)
            self._say("the watched pairs have changed, so the attention of the earlier ones was deleted")
        self._notes += [each for each in (history.damage, self._replay.damage) if each]
        self._earlier, self._earlier_seconds = self.info.provenance, self.info.seconds
        processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        device = self._batch.src.device.type  # which is the model's
        device = device if device in ("cpu", "cuda", "mps") else "cpu"
        self._session = begin_session(command="", step=self.last_step, device=device, processes=processes)
        self._opened = time.monotonic()
        self._flushed = time.perf_counter()
        self._info_times, self._map_times = Spacing(SECONDS_BETWEEN_INFOS), Spacing(SECONDS_BETWEEN_MAPS)
        self._has_new_maps = True
        self._evaluate(is_last=True)
        self._save("training")
        self._warn(stacklevel=5)  # of the call of ``watch``

    # ---- evaluating

    def _evaluate(self, *, is_last: bool = False) -> None:
        """Evaluate the batch now; a failure ends neither the training nor the watching."""
        self._convert()
        if self._pace.every is not None and not self._pace.is_fixed:
            self._note_interval(self._pace.every)
        started = time.perf_counter()
        try:
            evaluation, predicted = self._batch.evaluate()
            losses = self._losses
            train_loss = sum(losses) / len(losses) if losses else None
            self._metrics.add(EvaluationEvent(self.last_step, evaluation, is_best=False, train_loss=train_loss))
            self._losses = []
            if is_last or is_snapshot_step(self.last_step, every=self._replay.every):
                self._replay.add(self._batch.snapshot(self.last_step, evaluation, predicted))
                self._has_new_maps = True
                self._say(self._batch.note)
            accuracy = round(evaluation.token_accuracy, 6)
            figure = HeadlineFigure(measure="token_accuracy", name="token accuracy", value=accuracy)
            self.info = self.info.model_copy(update={"headline": (figure,)})
        except Exception as error:  # noqa: BLE001 - the model is the user's code and may raise anything
            reason = " ".join(shown(error).split())[:200]
            self._say(f"the watched batch could not be evaluated at step {self.last_step} ({reason})")
        self._evaluated = self.last_step
        self._pace.evaluated(time.perf_counter() - started)
        if len(self._replay.snapshots()) <= 2:  # the page is waiting for the first ones
            self._write(lambda: self._save("training"))

    def _note_interval(self, every: int) -> None:
        """Write the interval of evaluations that was chosen, once."""
        if self._replay.every == every:
            return
        self._replay.every = every
        preset = self._folder.read_preset()
        self._write(lambda: self._folder.replace_preset(with_interval(preset, every)))

    def _note_rate(self) -> None:
        """Remember the rate that the optimizer uses now: a scheduler may change it before ``step`` is called."""
        self._rate = self._present_rate()

    def _learning_rate(self) -> float:
        """Return the rate that the last update used; the present one if no update was seen since the last call."""
        rate, self._rate = self._rate, math.nan
        return self._present_rate() if math.isnan(rate) else rate

    def _present_rate(self) -> float:
        groups = self._optimizer.param_groups if self._optimizer is not None else []
        return float(groups[0]["lr"]) if groups else math.nan

    def _gradient_norm(self) -> torch.Tensor | float:
        """Return the norm of the gradients; NaN without any, or if it was measured a short time ago."""
        if self._model is None or self.last_step % self._norm_every:
            return math.nan
        started = time.perf_counter()
        gradients = [each.grad for each in self._model.parameters() if each.grad is not None]
        norm = nn.utils.get_total_norm(gradients) if gradients else math.nan
        if interval := self._pace.seconds_per_step:
            self._norm_every = math.ceil((time.perf_counter() - started) / (NORM_SHARE * interval))
        return norm

    # ---- writing

    def _convert(self) -> None:
        """Move what was recorded since the last call into the history."""
        pending, self._pending = self._pending, []
        for step, loss, rate, norm in pending:
            value = float(loss)
            if not math.isfinite(value):
                self._say(f"the loss is {value} at step {step}")
            elif step > self._last_point:
                self._metrics.add(StepEvent(step, value, _finite(rate), _finite(norm), math.nan))
                self._last_point = step
                self._losses.append(value)

    def _flush(self) -> None:
        """Append new metrics; write the rest if enough time has passed since it was last written."""
        self._convert()
        self._metrics.flush()
        self._flushed = time.perf_counter()
        if self._info_times.is_due():
            self._write_info("training")
        if self._has_new_maps and self._map_times.is_due():
            self._write_maps()

    def _write_maps(self) -> None:
        with self._map_times.measured():
            self._replay.save(self._folder.replay_file)
        self._has_new_maps = False

    def _write_info(self, status: Status) -> None:
        fields = {
            "status": status,
            "message": "; ".join(self._notes),
            "parameters": count_parameters(self._model) if self._model is not None else 0,
            "step": self.last_step,
            "seconds": round(self._earlier_seconds + time.monotonic() - self._opened, 3),
            "provenance": with_session(self._earlier, self._session),
            "metrics_sha256": None if status == "training" else self._metrics.sha256(),
        }
        with self._info_times.measured():
            self.info = self.info.model_copy(update=fields)
            self._folder.write_info(self.info)

    def _save(self, status: Status) -> None:
        """Write everything."""
        self._convert()
        self._metrics.flush(max_lines_per_row=2 if status == "training" else 1)
        self._write_maps()
        self._write_info(status)

    def _write(self, write: Callable[[], None]) -> None:
        """Write; a disk that is full or gone ends neither the training nor the watching."""
        try:
            write()
        except OSError as error:
            self._say(f"step {self.last_step} could not be written ({explain_error(error)})")
            self._flushed = time.perf_counter()  # wait before the next attempt

    def _say(self, note: str) -> None:
        """Add a note to the run's message; the first of a kind is a warning too, see ``_warn``."""
        kind = note.split(" at step ")[0].split(" (")[0]
        if note and not any(each.startswith(kind) for each in self._notes):
            self._notes.append(note)
            self._unsaid.append(note)

    def _warn(self, *, stacklevel: int = 3) -> None:
        """Give the warnings after everything else is done: ``python -W error`` makes exceptions of them."""
        while self._unsaid:
            warnings.warn(f"run={self.name!r}: {self._unsaid.pop(0)}", stacklevel=stacklevel)

    def _at_exit(self) -> None:
        """Close the run when the program ends; it failed if an exception ended the program."""
        error = getattr(sys, "last_value", None) if not hasattr(sys, "ps1") else None
        if error is None:
            self.close()
        else:
            self.close("failed", shown(error)[:300])


class _NotWatching(Watch):
    """What ``watch`` returns in the other processes of a distributed training: it does nothing."""

    def __init__(self) -> None:
        self.last_step, self._is_closed = 0, True

    @property
    def name(self) -> str:
        """There is no run."""
        return ""

    def diagnose(self, *, bos: int | None = None, eos: int | None = None, **options: Any) -> None:
        """Examine nothing."""


def _as_pairs(batch: WatchedBatch, filler: int | None) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return sources (B, S) and whole targets (B, T) of a batch; of a language model None and its sequences.

    Args:
        filler: id in place of a last target that does not count; None leaves all last targets out if there is one.
    """
    read = batch.src if batch.tgt_in is None else batch.tgt_in
    last = batch.tgt_out[:, -1:]
    if filler is not None:
        last = last.masked_fill(last < 0, filler)
    whole = read if bool((last < 0).any()) else torch.cat([read, last], dim=1)
    return None if batch.tgt_in is None else batch.src, whole


def _kept(field: str, value: Any) -> torch.Tensor | float:
    """Return a value as a number or, from a device for which reading it would wait, as a tensor to be read later."""
    if isinstance(value, torch.Tensor):
        if value.numel() != 1 or value.is_complex():
            raise InputError(f"{field} is {described(value)}; it must be one number")
        return value.item() if value.is_cpu else value.detach().clone()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{field}={short_repr(value)} must be one number") from None


def _finite(value: torch.Tensor | float) -> float:
    number = float(value)
    return number if math.isfinite(number) else math.nan
