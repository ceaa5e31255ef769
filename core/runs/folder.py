"""A run's folder on disk: ``checkpoints/<run>/`` with its preset, metrics and weights.

preset.yaml          the exact preset the run was started with
run.json             status and latest metrics (``RunInfo``)
metrics.jsonl        one JSON line per training step, thinned in long runs, and per evaluation (``History``)
best.safetensors     the weights with the lowest validation loss, with the preset in their metadata
last.safetensors     the full training state, to resume from
best.previous.safetensors, last.previous.safetensors
                     the files before those; used if the newer one is damaged
start.safetensors    the weights of another run that this one began with, if any (``core.runs.starting``)
pairs.tsv            the user-provided pairs, if the task learns any (``core.tasks.ingest``)
subwords.json        the tokenizers of source and target, if their tokens are subwords (``core.text.subwords``)
vocabulary.json      the vocabularies of the run that this one began from, if its own pairs are no subwords
                     (``core.tasks.vocabularies``)
replay.safetensors   attention of fixed inputs over the course of training (``Replay``)
weights-by-step.safetensors
                     the model's weights at a few training steps that the replay has (``WeightsByStep``)
doctor.json          the doctor's findings on a model trained by a user's own loop (``core.runs.watching``)
ablate.json          cached exact match without each head (``core.interpret.ablation``)
title.json           the title that the run was given (``core.runs.names``)
access.json          owner of the run on a public server (``core.server.ownership``)
report/              output of ``python -m core report``
.lock                held by the process that trains the run

Files are written under a temporary name such as ``.run.json.1f2e3d4c.tmp`` and then renamed, so that a crash never
leaves half a file. The exception is ``metrics.jsonl``: lines are appended to it, and ``History.load`` ignores an
incomplete last line. The folder of a new run is built as ``.NAME.1f2e3d4c.new``, and that of a deleted one is
renamed to ``.NAME.1f2e3d4c.deleted`` first. ``delete_leftovers`` deletes the temporary files and folders that a crash
left behind.
"""

import contextlib
import errno
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock, Timeout
from pydantic import ValidationError

from core.config import MAX_NAME_LENGTH, NAME_PATTERN, ConfigError, Preset, preset_to_yaml, read_preset, verified_pairs
from core.config.tasks import NOT_HERE, SUBWORDS, VOCABULARY
from core.runs.info import ACTIVE, PluginFile, RunInfo, Status
from core.runs.names import (
    Naming,
    check_unique,
    default_title,
    names_in_use,
    new_names,
    read_title,
    validate_title,
    write_title,
)
from core.runs.plugin_versions import changed_plugins, missing_plugins
from core.storage.atomic import delete_temporaries, fsync_folder, is_older_than, previous_path, write_atomically
from core.storage.error_messages import short_repr
from core.storage.errors import CheckpointError, LabError
from core.storage.text_checksum import has_changed, with_checksum, without_checksum

PAIRS = "pairs.tsv"
BEST = "best.safetensors"
START = "start.safetensors"
WITH_CHECKSUM = ("preset.yaml", "run.json", SUBWORDS, VOCABULARY)
_UNCHECKED_INFO = re.compile(rb'\{\s*"format"')
_CHANGED_INFO = "run.json was changed after it was written, so the status and the figures may be wrong"
DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "checkpoints"
_STALE_SECONDS = 3600.0  # creating a run never takes this long
_LEFT_BEHIND = re.compile(r"\.[a-z0-9-]+\.([0-9a-f]{8}\.)?(new|deleted)")
_LOCK_SECONDS = 0.3  # listing runs holds a lock for an instant, to test whether it is free
_log = logging.getLogger(__name__)


class RunError(LabError):
    """A run cannot be found, started, stopped or resumed; the message names the run and the reason."""


class UnsavedError(RunError):
    """A training failed since it could not be saved, for instance on a full disk."""

    exit_code = 1


class RunFolder:
    """One run's folder. Only the process that holds its lock may write training files into it."""

    def __init__(self, root: Path, name: str) -> None:
        """Refer to a run by name; the folder need not exist. ``name`` may be untrusted input.

        Raises:
            RunError: the name is not a valid run name (a valid name cannot leave ``root``).
        """
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
            raise RunError(
                f"run={short_repr(name)} is not a valid name: use a-z, 0-9 and -, at most {MAX_NAME_LENGTH} characters"
            )
        self.name = name
        self.path = root.absolute() / name  # a program may change its working directory later

    @classmethod
    def create(
        cls,
        root: Path,
        preset: Preset,
        *,
        name: str | Naming | None = None,
        status: Status = "queued",
        pairs: Path | None = None,
        contents: Mapping[str, bytes | bytearray] = MappingProxyType({}),
    ) -> "RunFolder":
        """Create the folder of a new run atomically: either complete or not at all.

        Args:
            name: the run's name, or proposals, of which the first free one is taken. None names the run after its
                preset and the next number in this folder, such as ``digits-reversal-3``.
            pairs: the file of user-provided pairs, if the task learns any; it is copied to ``pairs.tsv``. It may be
                missing if ``contents`` has the weights of a model that decodes without it.
            contents: further files by name; they replace the default ``preset.yaml`` and ``run.json``.

        Raises:
            RunError: a run of that name exists, or no folder can be made there.
            ConfigError: the file of user-provided pairs is missing or holds other pairs.
        """
        if name is not None and not callable(name) and cls(root, name).path.exists():
            raise cls(root, name)._name_taken()
        draft = root / f".{preset.name}.{secrets.token_hex(4)}.new"
        info = RunInfo(status=status).model_dump_json(indent=1)
        files = {"preset.yaml": preset_to_yaml(preset).encode(), "run.json": info.encode()}
        is_without_pairs = preset.task.data_origin and BEST in contents and not (pairs and pairs.is_file())
        if preset.task.own_data and not is_without_pairs:
            files[PAIRS] = verified_pairs(preset.task, pairs).read_bytes()
        if preset.task.inherited_vocabulary and not {SUBWORDS, VOCABULARY} & contents.keys():
            from core.tasks.vocabularies import missing_vocabulary  # imports torch, which a list of runs does not need

            raise missing_vocabulary(preset.task.inherited_vocabulary)
        if preset.task.has_subwords and SUBWORDS not in contents:
            files[SUBWORDS] = _learned_subwords(preset, pairs)
        try:
            draft.mkdir(parents=True)
        except OSError as error:  # which names the draft
            raise RunError(f"checkpoints={str(root)!r} cannot be written to: {error.strerror or error}") from error
        try:
            for file, content in (files | dict(contents)).items():
                is_text = file in WITH_CHECKSUM
                write_atomically(draft / file, with_checksum(bytes(content)) if is_text else content)
            folder = cls._first_free(root, draft, name, preset)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        fsync_folder(root)
        return folder

    @classmethod
    def adopt(cls, root: Path, draft: "RunFolder", name: str | Naming | None = None) -> "RunFolder":
        """Move a run into a folder of runs on the same disk, atomically.

        Args:
            draft: the run, in another folder; no process uses it.
            name: its name there, as for ``create``.

        Raises:
            RunError: a run of that name exists.
            OSError: the folder cannot be written to.
        """
        folder = cls._first_free(root, draft.path, name, draft.read_preset())
        fsync_folder(root)
        return folder

    @property
    def best(self) -> Path:
        """Path of the best weights, which may not exist yet."""
        return self.path / BEST

    @property
    def last(self) -> Path:
        """Path of the training state to resume from, which may not exist yet."""
        return self.path / "last.safetensors"

    @property
    def start(self) -> Path:
        """Path of the weights of another run that this one began with; missing if it began with random ones."""
        return self.path / START

    @property
    def pairs(self) -> Path:
        """Path of the run's copy of the user-provided pairs, if its task learns any."""
        return self.path / PAIRS

    @property
    def replay_file(self) -> Path:
        """Path of the attention snapshots, which may not exist yet."""
        return self.path / "replay.safetensors"

    @property
    def weights_by_step_file(self) -> Path:
        """Path of the weights at a few training steps, which may not exist."""
        return self.path / "weights-by-step.safetensors"

    @property
    def metrics(self) -> Path:
        """Path of the metrics, which may not exist yet."""
        return self.path / "metrics.jsonl"

    @property
    def ablation(self) -> Path:
        """Path of the cached ablation results, which may not exist yet."""
        return self.path / "ablate.json"

    @property
    def examination_file(self) -> Path:
        """Path of the doctor's findings on a watched training, which may not exist."""
        return self.path / "doctor.json"

    @property
    def report(self) -> Path:
        """Folder of the run's report, which may not exist yet."""
        return self.path / "report"

    def exists(self) -> bool:
        """Whether the run exists."""
        return os.path.isfile(self.path / "run.json")  # unlike Path.is_file, False if the folder cannot be accessed

    def count_bytes(self) -> int:
        """Return the total size of its files in bytes; 0 if there is no such run."""
        return sum(_size_of(file) for file in self.path.rglob("*"))

    def read_preset(self) -> Preset:
        """Read the preset; if ``preset.yaml`` was deleted, take it from the best weights' metadata.

        Raises:
            RunError: there is no such run, its preset is damaged or cannot be read, or it was deleted and the best
                weights do not contain it.
        """
        try:
            content = self._preset_yaml()
            return read_preset(without_checksum(content), name=self.name)
        except CheckpointError as error:
            raise self._read_error(f"preset.yaml is missing and cannot be restored: {error}") from error
        except OSError as error:
            raise self._read_error(f"preset.yaml cannot be read: {error.strerror or error}") from error
        except ConfigError as error:
            is_whole = without_checksum(content) != content or not self.has_preset()  # otherwise the weights' metadata
            reason = (
                missing_plugins(self.plugins())
                or changed_plugins(self.plugins())
                or ("its preset cannot be used" if is_whole else f"preset.yaml is damaged{self._remedy()}")
            )
            raise RunError(f"run={self.name!r}: {reason}: {error}") from error

    def has_preset(self) -> bool:
        """Whether ``preset.yaml`` exists."""
        return (self.path / "preset.yaml").is_file()

    def restore_preset(self, preset: Preset) -> bool:
        """Write ``preset.yaml`` if it is missing, and return whether it was missing.

        The lock is not needed: every process would write the same content.

        Raises:
            OSError: the folder cannot be written to.
        """
        if self.has_preset():
            return False
        self.replace_preset(preset)
        return True

    def replace_preset(self, preset: Preset) -> None:
        """Replace ``preset.yaml``, such as by the run's preset with another number of training steps.

        The caller must hold the lock, unless every process would write the same content.

        Raises:
            OSError: the folder cannot be written to.
        """
        write_atomically(self.path / "preset.yaml", with_checksum(preset_to_yaml(preset)))

    def ensure_preset(self) -> Preset:
        """Read the preset; if ``preset.yaml`` was deleted, restore it and add a note to the run's message.

        If the folder is read-only, the preset is returned all the same, and the failure is logged.

        Raises:
            RunError: as for ``read_preset``.
        """
        preset = self.read_preset()
        try:
            if self.restore_preset(preset):
                self.add_note(
                    "preset.yaml was deleted and has been restored from best.safetensors; nothing needs to be done"
                )
        except OSError as error:
            _log.info("%s: preset.yaml cannot be restored: %s", self.path, error)
        return preset

    def read_info(self) -> RunInfo:
        """Read the run's status and metrics; an active status is verified, see ``with_verified_status``.

        Raises:
            RunError: there is no such run, or its ``run.json`` is damaged or cannot be read.
        """
        return self.with_verified_status(self.written_info())

    def written_info(self) -> RunInfo:
        """Read ``run.json`` without verifying the status; RunError as for ``read_info``."""
        try:
            content = (self.path / "run.json").read_bytes()
            info = RunInfo.model_validate_json(without_checksum(content))
        except OSError as error:
            raise self._read_error(f"run.json cannot be read: {error.strerror or error}") from error
        except ValidationError as error:
            raise RunError(f"run={self.name!r}: run.json is damaged") from error
        # Without a checksum, the format comes first. A file whose checksum cannot be found starts differently.
        is_other = has_changed(content) or (without_checksum(content) == content and not _UNCHECKED_INFO.match(content))
        if is_other and _CHANGED_INFO not in info.message:
            info = info.model_copy(update={"message": "; ".join(filter(None, [info.message, _CHANGED_INFO]))})
        return info

    def with_verified_status(self, info: RunInfo) -> RunInfo:
        """Return ``info``, with status "interrupted" if it says the run is active but no process holds its lock."""
        if info.status in ACTIVE and not self._is_locked():
            message = "; ".join(filter(None, ["its process ended before training did", info.message]))
            return info.model_copy(update={"status": "interrupted", "message": message})
        return info

    def read_title(self) -> str:
        """Return the run's title, see ``core.runs.names``; also for a run that does not exist."""
        return read_title(self.path)

    def rename(self, title: str, *, others: Iterable[str]) -> str:
        """Give the run another title, also while it trains; the folder keeps its name.

        Args:
            title: the new title, with or without spaces around it; an empty one restores the default.
            others: titles of other runs, none of which may be given again.

        Returns:
            The title as stored.

        Raises:
            RunError: there is no such run, or it is shipped with the program.
            InputError: the title is not valid, or another run has it.
            OSError: the folder cannot be written to.
        """
        if self.written_info().shipped:
            raise RunError(f"run={self.name!r} is shipped with the program and cannot be renamed")
        chosen = validate_title(title) if title.strip() else default_title(self.name)
        check_unique(chosen, others)
        write_title(self.path, chosen)
        return chosen

    def write_info(self, info: RunInfo) -> None:
        """Replace ``run.json``. The caller must hold the lock, or be the only user of the folder."""
        write_atomically(self.path / "run.json", with_checksum(info.model_dump_json(indent=1)))

    def add_note(self, note: str) -> None:
        """Append a note to the run's message, once; it is logged instead if the folder is locked or read-only."""
        try:
            lock = self.lock()
            try:
                info = self.written_info()
                if note not in info.message:
                    message = "; ".join(filter(None, [info.message, note]))
                    self.write_info(info.model_copy(update={"message": message}))
            finally:
                lock.release()
        except (OSError, RunError) as error:
            _log.info("%s: note %r cannot be added to run.json: %s", self.path, note, error)

    def plugins(self) -> list[PluginFile]:
        """Return the plugins that the run was trained with, each as it was last; none if ``run.json`` is damaged."""
        try:
            sessions = self.written_info().provenance
        except RunError:
            return []
        return list({each.name: each for session in sessions for each in session.plugins}.values())

    def lock(self) -> FileLock:
        """Acquire the folder's lock, delete the temporary files of an earlier holder, and return the acquired lock.

        Hold it while the run is queued or trains, or to write ``run.json``. The caller must call ``release`` on the
        returned lock; the operating system releases it if the process dies. Do not use it in a ``with`` statement:
        that would acquire it a second time and release it only once.

        Raises:
            RunError: another process or thread holds the lock.
        """
        lock = self._lock()
        try:
            lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.02)
        except Timeout as error:
            message = "is in use: another process or thread trains it, has queued it or is writing to it"
            raise RunError(f"run={self.name!r} {message}") from error
        delete_temporaries(self.path, names=self._written_under_lock())
        return lock

    def _preset_yaml(self) -> bytes:
        """Return the content of ``preset.yaml``; if it is missing, that in the best weights, or CheckpointError."""
        try:
            content = (self.path / "preset.yaml").read_bytes()
            if has_changed(content) or (content.startswith(b"#") and without_checksum(content) == content):
                raise RunError(
                    f"run={self.name!r}: preset.yaml was changed after it was written; delete its first line, which is "
                    f"its checksum, to keep the change{self._remedy()}"
                )
            return content
        except FileNotFoundError:
            from core.storage.tensor_file import read_tensors  # imports torch, which a list of runs does not need

            text = read_tensors(self.best)[1].get("preset")
            if not isinstance(text, str):
                raise CheckpointError(f"{self.best.name} contains no preset") from None
            return text.encode()

    def _remedy(self) -> str:
        return ", or delete the file to restore it from best.safetensors" if self.best.exists() else ""

    def _read_error(self, reason: str) -> RunError:
        return RunError(f"run={self.name!r}: {reason if self.exists() else 'there is no such run'}")

    @classmethod
    def _first_free(cls, root: Path, draft: Path, name: str | Naming | None, preset: Preset) -> "RunFolder":
        """Rename a draft to the first name that no other run has, also if another process takes names meanwhile."""
        if name is None:
            names = new_names(preset.name, names_in_use(root))
        else:
            names = iter([name]) if isinstance(name, str) else name(preset)
        for each in names:
            folder = cls(root, each)
            if folder._rename_draft(draft):
                return folder
        raise folder._name_taken()

    def _rename_draft(self, draft: Path) -> bool:
        """Rename a draft to the run's folder; return whether the name was free."""
        if self.path.exists():
            return False
        try:
            draft.rename(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def _name_taken(self) -> RunError:
        return RunError(f"run={self.name!r} exists already; choose another name, or resume it")

    def _written_under_lock(self) -> set[str]:
        # Add every file that training writes. Files that are also written without the lock must not be in this set,
        # since the next holder would delete their temporary files while they are being written.
        weights = [self.best, previous_path(self.best), self.last, previous_path(self.last), self.weights_by_step_file]
        return {"run.json", *(path.name for path in (*weights, self.replay_file, self.metrics, self.examination_file))}

    def _lock(self) -> FileLock:
        return FileLock(self.path / ".lock", thread_local=False)

    def _is_locked(self) -> bool:
        try:
            with self._lock().acquire(blocking=False):
                return False
        except Timeout:
            return True


def check_resumable(
    folder: RunFolder, *, steps: int | None = None, how_to_extend: str = "resume --set training.steps=N"
) -> None:
    """Refuse to resume a run that is shipped, is active, or has no training steps left.

    So is a run whose plugins are not loaded, or have changed.

    Args:
        steps: number of training steps to resume it to; None is that of its preset.
        how_to_extend: what a caller types to extend a finished run to N steps, for the message.

    Raises:
        RunError: the run cannot be resumed, or there is no such run.
    """
    info = folder.read_info()
    if info.shipped:
        raise RunError(f"run={folder.name!r} is shipped with the program and cannot be resumed")
    if info.status in ACTIVE:
        raise RunError(f"run={folder.name!r} is already {info.status}")
    if folder.read_preset().is_watched:
        raise RunError(f"run={folder.name!r} {NOT_HERE}; start that program again, with lab.watch(…, resume=True)")
    if info.status == "finished" and not (folder.last.exists() or previous_path(folder.last).exists()):
        raise RunError(f"run={folder.name!r} has finished, and no training state is left to continue from")
    if missing := missing_plugins(folder.plugins()):
        raise RunError(f"run={folder.name!r} cannot be resumed: {missing}; load it with --plugin, or train a new run")
    if changed := changed_plugins(folder.plugins()):
        raise RunError(f"run={folder.name!r} cannot be resumed: {changed}; load the earlier file, or train a new run")
    planned = folder.read_preset().training.steps
    if steps in (None, planned) and info.status == "finished" and info.step >= planned:
        raise RunError(f"run={folder.name!r} has finished all its {planned} steps; {how_to_extend} extends it to N")
    if steps is not None and steps != planned and steps <= info.step:
        raise RunError(f"training.steps={steps} must be above {info.step}, the steps that run={folder.name!r} has made")


def other_titles(folder: RunFolder) -> list[str]:
    """Return the titles of the other runs in the folder of a run."""
    return [each.read_title() for each in list_runs(folder.path.parent) if each.name != folder.name]


def list_runs(root: Path) -> list[RunFolder]:
    """Return the runs in a folder, newest first; runs whose ``run.json`` is damaged come last."""
    entries = [entry for entry in os.scandir(root) if entry.is_dir()] if root.is_dir() else []
    names = [entry.name for entry in entries if re.fullmatch(NAME_PATTERN, entry.name)]
    folders = [folder for folder in (RunFolder(root, name) for name in names) if folder.exists()]
    return sorted(folders, key=_created_at, reverse=True)


def delete_leftovers(root: Path) -> None:
    """Delete temporary files and folders older than an hour, which crashes left in a folder of runs."""
    try:
        entries = [entry for entry in os.scandir(root) if entry.is_dir()]
    except OSError:  # the folder is missing or cannot be read
        return
    for entry in entries:
        with contextlib.suppress(OSError):  # it was deleted in the meantime, or cannot be accessed
            if not _LEFT_BEHIND.fullmatch(entry.name):
                delete_temporaries(Path(entry.path), seconds=_STALE_SECONDS)
            elif is_older_than(Path(entry.path), _STALE_SECONDS):
                shutil.rmtree(entry.path, ignore_errors=True)


def _created_at(folder: RunFolder) -> datetime:
    try:
        return folder.written_info().created
    except RunError:  # run.json is damaged, or was deleted just now
        return datetime.min.replace(tzinfo=UTC)


def _learned_subwords(preset: Preset, pairs: Path | None) -> bytes:
    """Return the content of ``subwords.json`` for a new run."""
    from core.tasks import build_task  # reading a folder does not need it

    subwords = build_task(preset.task, pairs=pairs).subwords
    assert subwords is not None  # noqa: S101 - the preset says that there are
    return subwords.model_dump_json().encode()


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # a temporary file that was renamed in the meantime
        return 0
