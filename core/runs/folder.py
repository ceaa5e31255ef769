"""A run on disk: ``checkpoints/<run>/`` with its preset, its figures and its weights.

preset.yaml          the exact preset it was started with
run.json             status and latest figures (``RunInfo``)
metrics.jsonl        one line a step, one an evaluation (``History``)
best.safetensors     the weights with the lowest validation loss, and the preset: a run in one file (``core.runs``)
last.safetensors     everything needed to continue
best.previous.safetensors, last.previous.safetensors
                     those before; used where the newer one is damaged
pairs.tsv            the pairs it learns, where somebody brought them (``core.tasks.ingest``)
replay.safetensors   attention of fixed inputs over the training (``Replay``)
ablate.json       exact match without each head, measured before (``core.interpret.ablation``)
report/              what ``python -m core report`` wrote
.lock                held by whoever trains the run

A file is written under a name such as ``.run.json.1f2e3d4c.tmp`` and then renamed; a new run's folder is first called
``.NAME.1f2e3d4c.new``. What a crash leaves of these is swept away later.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.config import NAME_PATTERN, ConfigError, Preset, preset_to_yaml, read_preset, verified_pairs
from core.runs.names import free_name
from core.storage.atomic import is_older, sweep_temporaries, sync_folder, write_atomically
from core.storage.errors import LabError
from core.storage.tensor_file import CheckpointError, previous_of, read_tensors

PAIRS = "pairs.tsv"
DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "checkpoints"
Status = Literal["queued", "training", "stopping", "stopped", "finished", "failed", "interrupted"]
ACTIVE: tuple[Status, ...] = ("queued", "training", "stopping")
_STALE_SECONDS = 3600.0  # no draft takes so long to be made
_DRAFT = re.compile(r"\.[a-z0-9-]+\.([0-9a-f]{8}\.)?new")
_LOCK_SECONDS = 0.3  # a list being made may hold a lock for an instant, to see whether it is free


class RunError(LabError):
    """A run cannot be found, started, stopped or resumed; the message names it and says why."""


class RunInfo(BaseModel):
    """What a run's ``run.json`` says; small enough to be read for every line of a list."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    format: Literal["attention-lab-run-1"] = "attention-lab-run-1"
    status: Status
    message: str = ""
    created: datetime = Field(default_factory=lambda: datetime.now(UTC))
    shipped: bool = False
    parameters: int = 0
    step: int = 0
    best_step: int | None = None
    exact_match: float | None = None
    sequences_seen: int = 0
    seconds: float = 0.0


class RunFolder:
    """One run's folder. Only the holder of its lock writes into it."""

    def __init__(self, root: Path, name: str) -> None:
        """Point at a run; ``name`` may come from a visitor.

        Raises:
            RunError: the name is not one a run can have (so it cannot leave ``root``).
        """
        if not re.fullmatch(NAME_PATTERN, name):
            raise RunError(f"run={name[:60]!r} is not a name: use a-z, 0-9 and -, at most 48 characters")
        self.name = name
        self.path = root / name

    @classmethod
    def create(
        cls,
        root: Path,
        preset: Preset,
        *,
        name: str | None = None,
        status: Status = "queued",
        pairs: Path | None = None,
        contents: Mapping[str, bytes] = MappingProxyType({}),
    ) -> "RunFolder":
        """Make the folder of a new run, complete at once or not at all.

        Args:
            name: the run's name; None makes up a free one such as ``brisk-otter``.
            pairs: the file of the task's own pairs, if it has any; the run keeps a copy.
            contents: of further files, by name, or of others than a new run's.

        Raises:
            RunError: there is a run of that name.
            ConfigError: the file of own pairs is missing or holds other pairs.
        """
        folder = cls(root, name or free_name(root))
        if folder.path.exists():
            raise RunError(f"run={folder.name!r} exists already; choose another name, or resume it")
        root.mkdir(parents=True, exist_ok=True)
        draft = root / f".{folder.name}.{secrets.token_hex(4)}.new"
        info = RunInfo(status=status).model_dump_json(indent=1)
        files = {"preset.yaml": preset_to_yaml(preset).encode(), "run.json": info.encode()}
        if preset.task.own_data:
            files[PAIRS] = verified_pairs(preset.task, pairs).read_bytes()
        draft.mkdir()
        try:
            for file, content in (files | dict(contents)).items():
                write_atomically(draft / file, content)
            folder._take(draft)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(root)
        return folder

    @property
    def best(self) -> Path:
        """Where the best weights are, or will be."""
        return self.path / "best.safetensors"

    @property
    def last(self) -> Path:
        """Where the state to continue from is, or will be."""
        return self.path / "last.safetensors"

    @property
    def pairs(self) -> Path:
        """Where the run's own pairs are, if its task has any."""
        return self.path / PAIRS

    @property
    def replay(self) -> Path:
        """Where the attention over the training is, or will be."""
        return self.path / "replay.safetensors"

    @property
    def metrics(self) -> Path:
        """Where the figures are, or will be."""
        return self.path / "metrics.jsonl"

    @property
    def ablate(self) -> Path:
        """Where exact match without each head is remembered, or will be."""
        return self.path / "ablate.json"

    @property
    def report(self) -> Path:
        """The folder its report is in, or will be."""
        return self.path / "report"

    def exists(self) -> bool:
        """Whether there is such a run."""
        return (self.path / "run.json").is_file()

    def size(self) -> int:
        """Return how many bytes its files take; 0 if there is no such run."""
        return sum(_size_of(file) for file in self.path.rglob("*"))

    def preset(self) -> Preset:
        """Read the preset the run was started with; where its file was deleted, the best weights bring it.

        Raises:
            RunError: there is no such run, or its preset is damaged.
        """
        try:
            return read_preset(self._preset_text(), name=self.name)
        except (OSError, CheckpointError) as error:
            raise RunError(f"run={self.name!r}: there is no such run") from error
        except ConfigError as error:
            raise RunError(f"run={self.name!r}: preset.yaml is damaged: {error}") from error

    def has_preset(self) -> bool:
        """Whether its preset is there, or was deleted."""
        return (self.path / "preset.yaml").is_file()

    def write_preset(self, preset: Preset) -> None:
        """Write the preset, which was deleted, again."""
        write_atomically(self.path / "preset.yaml", preset_to_yaml(preset).encode())

    def info(self) -> RunInfo:
        """Read the run's status and figures, with its true status.

        Raises:
            RunError: there is no such run, or its ``run.json`` is damaged.
        """
        return self.with_true_status(self.written_info())

    def written_info(self) -> RunInfo:
        """Read ``run.json`` as it was written; RunError as for ``info``."""
        try:
            return RunInfo.model_validate_json((self.path / "run.json").read_bytes())
        except OSError as error:
            raise RunError(f"run={self.name!r}: there is no such run") from error
        except ValidationError as error:
            raise RunError(f"run={self.name!r}: run.json is damaged") from error

    def with_true_status(self, info: RunInfo) -> RunInfo:
        """Correct a status that claims to train although nobody holds the lock: the run was interrupted."""
        if info.status in ACTIVE and not self._is_locked():
            message = "; ".join(filter(None, ["its process ended before it did", info.message]))
            return info.model_copy(update={"status": "interrupted", "message": message})
        return info

    def write_info(self, info: RunInfo) -> None:
        """Replace ``run.json``."""
        write_atomically(self.path / "run.json", info.model_dump_json(indent=1).encode())

    def lock(self) -> FileLock:
        """Take the lock that whoever trains or waits to train this run holds; it goes with its process.

        Raises:
            RunError: somebody else holds it.
        """
        lock = self._lock()
        try:
            lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.02)
        except Timeout as error:
            raise RunError(f"run={self.name!r} is being trained already") from error
        sweep_temporaries(self.path, names=self._written_under_lock())
        return lock

    def _preset_text(self) -> bytes:
        try:
            return (self.path / "preset.yaml").read_bytes()
        except FileNotFoundError:
            text = read_tensors(self.best)[1].get("preset")
            if not isinstance(text, str):  # such as in weights of the first releases
                raise
            return text.encode()

    def _take(self, draft: Path) -> None:
        """Make a draft the run, unless somebody else was quicker."""
        try:
            draft.rename(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise RunError(f"run={self.name!r} exists already; choose another name, or resume it") from error

    def _written_under_lock(self) -> set[str]:
        kept = [self.best, previous_of(self.best), self.last, previous_of(self.last), self.replay, self.metrics]
        return {"preset.yaml", "run.json", *(path.name for path in kept)}

    def _lock(self) -> FileLock:
        return FileLock(self.path / ".lock", thread_local=False)

    def _is_locked(self) -> bool:
        try:
            with self._lock().acquire(blocking=False):
                return False
        except Timeout:
            return True


def check_resumable(folder: RunFolder) -> None:
    """Raise RunError unless there are steps left to do and nobody is doing them."""
    info = folder.info()
    if info.status in ACTIVE:
        raise RunError(f"run={folder.name!r} is {info.status} already")
    if info.shipped or info.status == "finished":
        raise RunError(f"run={folder.name!r} has finished all its {folder.preset().training.steps} steps")


def list_runs(root: Path) -> list[RunFolder]:
    """Return the runs in a folder, newest first."""
    found = [entry for entry in os.scandir(root) if entry.is_dir()] if root.is_dir() else []
    names = [entry.name for entry in found if re.fullmatch(NAME_PATTERN, entry.name)]
    folders = [folder for folder in (RunFolder(root, name) for name in names) if folder.exists()]
    return sorted(folders, key=_begun, reverse=True)


def _begun(folder: RunFolder) -> float:
    try:
        return (folder.path / "preset.yaml").stat().st_mtime
    except OSError:  # deleted just now: it is left out by whoever reads it
        return 0.0


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # a temporary file that was renamed meanwhile
        return 0


def sweep(root: Path) -> None:
    """Delete what crashes left in a folder of runs; what is younger than an hour may still be somebody's."""
    with contextlib.suppress(OSError):  # a folder that is not there, or is not ours to tidy
        for entry in [each for each in os.scandir(root) if each.is_dir()]:
            if not _DRAFT.fullmatch(entry.name):
                sweep_temporaries(Path(entry.path), seconds=_STALE_SECONDS)
            elif is_older(Path(entry.path), _STALE_SECONDS):
                shutil.rmtree(entry.path, ignore_errors=True)
