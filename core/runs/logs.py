"""Metrics of a training written for other programs too: a CSV file, TensorBoard, Trackio or Weights & Biases.

Each is a function that opens a ``Log``; the recorder's files stay what the program itself reads. All but Trackio write
into the run's folder. A package is imported only where it is chosen.
"""

import contextlib
import csv
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from core.evaluation.metrics import METRICS
from core.runs.folder import RunFolder
from core.storage.error_messages import shortened
from core.storage.errors import InputError, LabError
from core.storage.optional_imports import is_installed, needs_package
from core.training.history import ERROR_COLUMNS, QUALITY_COLUMNS
from core.training.loop import EvaluationEvent, Event, StepEvent
from core.training.state import TrainingState

PROJECT = "attention-lab"
CSV_FILE, TENSORBOARD_FOLDER = "log.csv", "tensorboard"
_STEP_VALUES = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")
_EVALUATION_VALUES = ("loss", "token_accuracy", "exact_match", "free_running_loss", *QUALITY_COLUMNS, *ERROR_COLUMNS)
_TRAINING_VALUES = ("token_accuracy", "exact_match")  # of an evaluation, on training pairs
_logger = logging.getLogger(__name__)


class Log(Protocol):
    """Takes the values of a training, in the order of its steps."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take values of one step, such as ``train/loss`` or ``validation/loss``; others of it may follow."""

    def close(self) -> None:
        """Write everything."""


def check_logs(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of logs without repetitions.

    Raises:
        InputError: there is no log of this name, or the package that it needs is not installed.
    """
    for name in names:
        if name not in LOGS:
            raise InputError(f"--log={shortened(name)} is not known; there are {', '.join(LOGS)}")
        if name != "csv" and not is_installed(name):
            raise InputError(f"--log={name} {needs_package(name)}")
    return tuple(dict.fromkeys(names))


@contextlib.contextmanager
def open_logs(names: Sequence[str], folder: RunFolder, state: TrainingState) -> Iterator[Callable[[Event], None]]:
    """Open logs inside the block, and yield a function that writes a training event to all of them.

    A log that fails later is left out from then on, with a warning: the training goes on.

    Args:
        names: see ``check_logs``.
        folder: the run's folder.
        state: the training state to start from; what a log has of later steps is removed, or marked as outdated.

    Raises:
        LabError: a log cannot be opened.
    """
    logs: dict[str, Log] = {}

    def use(name: str, action: Callable[[Log], None]) -> None:
        try:
            action(logs[name])
        except Exception as error:  # noqa: BLE001 - packages raise what they like, and none is worth a training
            _logger.warning(
                "%s: --log=%s: %s: %s; it is not written any more", folder.name, name, type(error).__name__, error
            )
            del logs[name]

    def write(event: Event) -> None:
        if values := values_of(event):
            for name in list(logs):
                use(name, lambda log: log.write(event.step, values))

    try:
        for name in names:
            try:
                logs[name] = LOGS[name](folder, state)
            except Exception as error:
                raise LabError(f"--log={name} cannot be opened: {error}") from error
        yield write
    finally:
        for name in list(logs):
            use(name, lambda log: log.close())


def values_of(event: Event) -> dict[str, float]:
    """Return the values of an event by name; none of an event that is neither a step nor an evaluation."""
    if isinstance(event, StepEvent):
        return {f"train/{name}": getattr(event, name) for name in _STEP_VALUES}
    if not isinstance(event, EvaluationEvent):
        return {}
    values = {name: getattr(event.evaluation, name) for name in _EVALUATION_VALUES} | event.evaluation.metrics
    measured = {f"validation/{name}": value for name, value in values.items()}
    measured |= {f"train/{name}": getattr(event.evaluation, f"train_{name}") for name in _TRAINING_VALUES}
    return {name: value for name, value in measured.items() if value is not None}


class _CsvLog:
    """``log.csv``: a row a step, with the validation figures where there was an evaluation."""

    def __init__(self, folder: RunFolder, state: TrainingState) -> None:
        path = folder.path / CSV_FILE
        names = [*(f"train/{name}" for name in (*_STEP_VALUES, *_TRAINING_VALUES))]
        names += [f"validation/{name}" for name in (*_EVALUATION_VALUES, *METRICS)]
        rows: list[dict[str, Any]] = []
        if path.exists() and state.step:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                names = [name for name in reader.fieldnames or () if name != "step"]
                rows = [row for row in reader if (row["step"] or "").isdigit() and int(row["step"]) <= state.step]
        awaits_evaluation = rows and int(rows[-1]["step"]) == state.step != state.evaluated_step
        self._row: dict[str, Any] = rows.pop() if awaits_evaluation else {}
        temporary = path.with_name(f".{CSV_FILE}.new")
        self._file = temporary.open("w", encoding="utf-8", newline="", buffering=1)
        self._writer = csv.DictWriter(self._file, ["step", *names], extrasaction="ignore", lineterminator="\n")
        self._writer.writeheader()
        self._writer.writerows(rows)
        os.replace(temporary, path)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._row and int(self._row["step"]) != step:
            self._flush()
        self._row |= {"step": step} | dict(values)
        if any(name.startswith("validation/") for name in values):  # the last values of a step
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._row:
            self._writer.writerow(self._row)
        self._row = {}


class _TensorBoardLog:
    """Event files in ``tensorboard/``, which ``tensorboard --logdir checkpoints`` finds."""

    def __init__(self, folder: RunFolder, state: TrainingState) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = state.step + 1 if state.step else None
        self._writer: Any = SummaryWriter(str(folder.path / TENSORBOARD_FOLDER), purge_step=purge)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _TrackioLog:
    """A run of the project ``attention-lab`` in Trackio's database, which is on this machine by default."""

    def __init__(self, folder: RunFolder, state: TrainingState) -> None:
        import trackio

        self._trackio: Any = trackio
        with contextlib.redirect_stdout(sys.stderr):  # what it prints is no result of a command
            self._run: Any = trackio.init(
                PROJECT,
                name=folder.name,
                config=_settings(state),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._trackio.finish()  # the run's own method would leave it to be finished again at exit


class _WandbLog:
    """A run of the project ``attention-lab``, in ``wandb/``; sent nowhere unless ``WANDB_MODE=online``."""

    def __init__(self, folder: RunFolder, state: TrainingState) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        created = folder.written_info().created
        self._run: Any = wandb.init(
            project=PROJECT,
            name=folder.name,
            id=f"{folder.name}-{int(created.timestamp())}",  # sessions of a run belong together, runs of a name do not
            dir=str(folder.path),
            config=_settings(state),
            mode=mode,
            resume=None if mode == "offline" else "allow",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, Callable[[RunFolder, TrainingState], Log]] = {
    "csv": _CsvLog,
    "tensorboard": _TensorBoardLog,
    "trackio": _TrackioLog,
    "wandb": _WandbLog,
}
"""How each log is opened; all but ``csv`` are named after the package that they need."""


def _settings(state: TrainingState) -> dict[str, Any]:
    """Return the preset's values by key, such as ``training.seed``."""
    document = state.preset.model_dump(mode="json")
    return {
        f"{section}.{key}": value
        for section, values in document.items()
        if isinstance(values, dict)
        for key, value in values.items()
    } | {"preset": state.preset.name}
