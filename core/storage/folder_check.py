"""Check once, before runs are written to a folder, whether it supports crash-safe files."""

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from core.storage.atomic import fsync_folder
from core.storage.errors import InputError

_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LONG_AGO = 1e9  # seconds since 1970


def check_folder(root: Path) -> str:
    """Create a folder of runs if it is missing, and test the operations that writing runs needs.

    Returns:
        What does not work in a read-only or full folder, where runs can still be viewed; "" if everything works.

    Raises:
        InputError: an operation fails without which runs would be lost or damaged; the message names it and the folder.
    """
    draft = root / f".check.{secrets.token_hex(4)}.new"  # see ``core.runs.delete_leftovers``
    operation = "create a folder"
    try:
        root.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        for operation, do in _OPERATIONS.items():  # noqa: B007 - named in the messages below
            do(draft)
    except OSError as error:
        if error.errno in _FULL:
            return f"checkpoints={str(root)!r} is full: runs can be looked at and deleted, but none can be saved"
        if error.errno in _NOT_WRITABLE and not draft.exists() and root.is_dir():
            return f"checkpoints={str(root)!r} is not writable: runs can be looked at, but none can be trained or saved"
        raise InputError(
            f"checkpoints={str(root)!r} cannot hold runs: it cannot {operation} ({error.strerror or error}). A crash "
            "would damage runs there; choose a folder on a disk of this machine"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return ""


def _sync_file(draft: Path) -> None:
    with (draft / "file").open("wb") as file:
        file.write(b"old")
        file.flush()
        os.fsync(file.fileno())


def _replace_file(draft: Path) -> None:
    os.utime(draft, (_LONG_AGO, _LONG_AGO))
    (draft / "other").write_bytes(b"new")
    os.replace(draft / "other", draft / "file")
    if (draft / "file").read_bytes() != b"new":
        raise OSError(errno.EIO, "the file has another content afterwards")


def _show_change(draft: Path) -> None:
    if draft.stat().st_mtime == _LONG_AGO:
        raise OSError(errno.ENOTSUP, "the folder's time did not change")


def _append(draft: Path) -> None:
    with (draft / "file").open("ab") as file:
        file.write(b"er")
    if (draft / "file").read_bytes() != b"newer":
        raise OSError(errno.EIO, "the file has another content afterwards")


def _rename_folder(draft: Path) -> None:
    (draft / "draft").mkdir()
    (draft / "draft" / "file").write_bytes(b"")
    (draft / "draft").rename(draft / "folder")
    if not (draft / "folder" / "file").exists():
        raise OSError(errno.EIO, "its file is missing afterwards")


def _lock(draft: Path) -> None:
    first, second = FileLock(draft / ".lock"), FileLock(draft / ".lock")
    with first.acquire(blocking=False):
        if isinstance(first, SoftFileLock):  # the class that filelock uses without system locks
            raise OSError(errno.ENOSYS, "there are no locks that end with their process")
        try:
            second.acquire(blocking=False)
        except Timeout:
            return
        second.release()
    raise OSError(errno.ENOLCK, "two hold the same lock")


_OPERATIONS: dict[str, Callable[[Path], None]] = {
    "save a file to the disk (fsync)": _sync_file,
    "replace a file by renaming another": _replace_file,
    "show that a file in a folder was replaced": _show_change,
    "save a folder to the disk (fsync)": fsync_folder,
    "append to a file": _append,
    "rename a folder": _rename_folder,
    "lock a file": _lock,
}
