"""A run's folder on disk: ``checkpoints/<run>/`` with its preset, metrics and weights.

preset.yaml          the exact preset the run was started with
run.json             status and latest metrics (``RunInfo``)
metrics.jsonl        one JSON line per training step and per evaluation (``History``)
best.safetensors     the weights with the lowest validation loss, with the preset in their metadata
last.safetensors     the full training state, to resume from
best.previous.safetensors, last.previous.safetensors
                     the files before those; used if the newer one is damaged
pairs.tsv            the user's own training pairs, if the task has any (``core.tasks.ingest``)
replay.safetensors   attention of fixed inputs over the course of training (``Replay``)
ablate.json          cached exact match without each head (``core.interpret.ablation``)
access.json          owner of the run on a public server (``core.server.ownership``)
report/              output of ``python -m core report``
.lock                held by the process that trains the run

Every file is written under a temporary name such as ``.run.json.1f2e3d4c.tmp`` and then renamed. The folder of a new
run is built as ``.NAME.1f2e3d4c.new``. ``sweep`` deletes what a crash leaves of these.
"""

import contextlib
import errno
import logging
import os
import random
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
from core.storage.atomic import delete_temporaries, fsync_folder, is_older_than, write_atomically
from core.storage.errors import InputError, LabError
from core.storage.tensor_file import CheckpointError, previous_path, read_tensors

PAIRS = "pairs.tsv"
DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "checkpoints"
Status = Literal["queued", "training", "stopping", "stopped", "finished", "failed", "interrupted"]
ACTIVE: tuple[Status, ...] = ("queued", "training", "stopping")
_STALE_SECONDS = 3600.0  # creating a run never takes this long
_DRAFT = re.compile(r"\.[a-z0-9-]+\.([0-9a-f]{8}\.)?new")
_LOCK_SECONDS = 0.3  # listing runs holds a lock for an instant, to test whether it is free
_ADJECTIVES = "able bold brisk calm clear deft eager fair fleet keen kind light lucid merry neat nimble quick quiet"
_NOUNS = "badger crane dove finch fox hare heron jay lark lynx marten otter owl pike robin seal swift tern wren"
_log = logging.getLogger(__name__)


class RunError(LabError):
    """A run cannot be found, started, stopped or resumed; the message names the run and the reason."""


class RunInfo(BaseModel):
    """Content of a run's ``run.json``: status and latest metrics, small enough to read for every row of a list."""

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
    """One run's folder. Only the process that holds its lock may write training files into it."""

    def __init__(self, root: Path, name: str) -> None:
        """Refer to a run by name; the folder need not exist. ``name`` may come from a visitor.

        Raises:
            RunError: the name is not a valid run name (a valid name cannot leave ``root``).
        """
        if not re.fullmatch(NAME_PATTERN, name):
            raise RunError(f"run={name[:60]!r} is not a valid name: use a-z, 0-9 and -, at most 48 characters")
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
        """Create the folder of a new run atomically: either complete or not at all.

        Args:
            name: the run's name; None generates a free one such as ``brisk-otter``.
            pairs: the file of the task's own pairs, if it has any; the run keeps a copy.
            contents: further files by name; they replace the default ``preset.yaml`` and ``run.json``.

        Raises:
            RunError: a run of that name exists.
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
            folder._rename_draft(draft)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        fsync_folder(root)
        return folder

    @property
    def best(self) -> Path:
        """Path of the best weights, which may not exist yet."""
        return self.path / "best.safetensors"

    @property
    def last(self) -> Path:
        """Path of the training state to resume from, which may not exist yet."""
        return self.path / "last.safetensors"

    @property
    def pairs(self) -> Path:
        """Path of the run's own pairs, if its task has any."""
        return self.path / PAIRS

    @property
    def replay(self) -> Path:
        """Path of the attention snapshots, which may not exist yet."""
        return self.path / "replay.safetensors"

    @property
    def metrics(self) -> Path:
        """Path of the metrics, which may not exist yet."""
        return self.path / "metrics.jsonl"

    @property
    def ablation(self) -> Path:
        """Path of the cached ablation results, which may not exist yet."""
        return self.path / "ablate.json"

    @property
    def report(self) -> Path:
        """Folder of the run's report, which may not exist yet."""
        return self.path / "report"

    def exists(self) -> bool:
        """Whether the run exists."""
        return (self.path / "run.json").is_file()

    def size(self) -> int:
        """Return the total size of its files in bytes; 0 if there is no such run."""
        return sum(_size_of(file) for file in self.path.rglob("*"))

    def preset(self) -> Preset:
        """Read the preset; if ``preset.yaml`` was deleted, take it from the best weights' metadata.

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
        """Whether ``preset.yaml`` exists."""
        return (self.path / "preset.yaml").is_file()

    def write_preset(self, preset: Preset) -> None:
        """Write ``preset.yaml``."""
        write_atomically(self.path / "preset.yaml", preset_to_yaml(preset).encode())

    def ensure_preset(self) -> Preset:
        """Read the preset; if ``preset.yaml`` was deleted, restore the file and note that in the run's message.

        Raises:
            RunError: there is no such run, its preset is damaged, or it was deleted and there are no weights.
        """
        existed, preset = self.has_preset(), self.preset()
        if not existed:
            note = "preset.yaml was deleted and has been restored from best.safetensors; nothing needs to be done"
            self.add_note(note, preset=preset)
        return preset

    def info(self) -> RunInfo:
        """Read the run's status and metrics; an active status is verified, see ``with_verified_status``.

        Raises:
            RunError: there is no such run, or its ``run.json`` is damaged.
        """
        return self.with_verified_status(self.written_info())

    def written_info(self) -> RunInfo:
        """Read ``run.json`` without verifying the status; RunError as for ``info``."""
        try:
            return RunInfo.model_validate_json((self.path / "run.json").read_bytes())
        except OSError as error:
            raise RunError(f"run={self.name!r}: there is no such run") from error
        except ValidationError as error:
            raise RunError(f"run={self.name!r}: run.json is damaged") from error

    def with_verified_status(self, info: RunInfo) -> RunInfo:
        """Return the info, as "interrupted" if it claims to be active but no process holds the run's lock."""
        if info.status in ACTIVE and not self._is_locked():
            message = "; ".join(filter(None, ["its process ended before training did", info.message]))
            return info.model_copy(update={"status": "interrupted", "message": message})
        return info

    def write_info(self, info: RunInfo) -> None:
        """Replace ``run.json``."""
        write_atomically(self.path / "run.json", info.model_dump_json(indent=1).encode())

    def add_note(self, note: str, *, preset: Preset | None = None) -> None:
        """Append a note to the run's message, once; logged instead if the folder is locked or read-only.

        Args:
            preset: also written to ``preset.yaml``, if given.
        """
        try:
            lock = self.lock()
            try:
                if preset is not None:
                    self.write_preset(preset)
                info = self.written_info()
                if note not in info.message:
                    message = "; ".join(filter(None, [info.message, note]))
                    self.write_info(info.model_copy(update={"message": message}))
            finally:
                lock.release()
        except (OSError, RunError) as error:
            _log.info("%s: not noted in run.json: %s", self.path, error)

    def lock(self) -> FileLock:
        """Acquire the lock of a run that trains or is queued; the operating system frees it when the process ends.

        Raises:
            RunError: another process or thread holds it.
        """
        lock = self._lock()
        try:
            lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.02)
        except Timeout as error:
            raise RunError(f"run={self.name!r} is already being trained") from error
        delete_temporaries(self.path, names=self._written_under_lock())
        return lock

    def _preset_text(self) -> bytes:
        try:
            return (self.path / "preset.yaml").read_bytes()
        except FileNotFoundError:
            text = read_tensors(self.best)[1].get("preset")
            if not isinstance(text, str):
                raise
            return text.encode()

    def _rename_draft(self, draft: Path) -> None:
        """Rename a draft to the run's folder; RunError if another process created the run first."""
        try:
            draft.rename(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise RunError(f"run={self.name!r} exists already; choose another name, or resume it") from error

    def _written_under_lock(self) -> set[str]:
        files = [self.best, previous_path(self.best), self.last, previous_path(self.last), self.replay, self.metrics]
        return {"preset.yaml", "run.json", *(path.name for path in files)}

    def _lock(self) -> FileLock:
        return FileLock(self.path / ".lock", thread_local=False)

    def _is_locked(self) -> bool:
        try:
            with self._lock().acquire(blocking=False):
                return False
        except Timeout:
            return True


def check_resumable(folder: RunFolder) -> None:
    """Raise RunError unless the run has steps left and nothing is training it."""
    info = folder.info()
    if info.status in ACTIVE:
        raise RunError(f"run={folder.name!r} is already {info.status}")
    if info.shipped or info.status == "finished":
        raise RunError(f"run={folder.name!r} has finished all its {folder.preset().training.steps} steps")


def list_runs(root: Path) -> list[RunFolder]:
    """Return the runs in a folder, newest first."""
    entries = [entry for entry in os.scandir(root) if entry.is_dir()] if root.is_dir() else []
    names = [entry.name for entry in entries if re.fullmatch(NAME_PATTERN, entry.name)]
    folders = [folder for folder in (RunFolder(root, name) for name in names) if folder.exists()]
    return sorted(folders, key=_created_at, reverse=True)


def free_name(root: Path) -> str:
    """Generate a free run name that is easy to remember, from the operating system's randomness (unseeded)."""
    dice = random.SystemRandom()
    for attempt in range(1000):
        name = f"{dice.choice(_ADJECTIVES.split())}-{dice.choice(_NOUNS.split())}"
        name += f"-{dice.randrange(10 ** (attempt // 10 + 1))}" if attempt > 4 else ""
        if not (root / name).exists():
            return name
    raise InputError(f"no free name for a run in {root.name}")


def numbered_name(root: Path, name: str) -> str:
    """Return ``name`` if it is free, else ``name-2``, ``name-3`` and so on, whichever is free first."""
    number, free = 1, name
    while (root / free).exists():
        number += 1
        free = f"{name}-{number}"
    return free


def sweep(root: Path) -> None:
    """Delete temporary files and folders older than an hour, which crashes left in a folder of runs."""
    with contextlib.suppress(OSError):  # the folder is missing or read-only
        for entry in [each for each in os.scandir(root) if each.is_dir()]:
            if not _DRAFT.fullmatch(entry.name):
                delete_temporaries(Path(entry.path), seconds=_STALE_SECONDS)
            elif is_older_than(Path(entry.path), _STALE_SECONDS):
                shutil.rmtree(entry.path, ignore_errors=True)


def _created_at(folder: RunFolder) -> float:
    try:
        return (folder.path / "preset.yaml").stat().st_mtime
    except OSError:  # deleted just now; reading the run will fail and leave it out
        return 0.0


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # a temporary file that was renamed in the meantime
        return 0
