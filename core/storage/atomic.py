"""Crash-safe file writes: after a crash a file has either its old or its new content, never a part of either."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Collection
from pathlib import Path

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")


def write_atomically(path: Path, *data: bytes | bytearray | memoryview, previous: Path | None = None) -> None:
    """Replace a file's content: write to a temporary name, fsync, rename, fsync the folder.

    Args:
        data: the new content, in one part or several.
        previous: where to keep the old file, if there is one. At every moment at least one of the two files exists.

    Raises:
        OSError: the disk is full or the folder is not writable; the old file is unchanged.
    """
    temporary = _temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.writelines(data)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None:
            _keep_as(previous, path)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def previous_path(path: Path) -> Path:
    """Return where weight files keep the version that they replace: ``last.previous.safetensors``."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def fsync_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power failure. Does nothing on systems other than POSIX."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_temporaries(folder: Path, *, names: Collection[str] | None = None, seconds: float = 0.0) -> None:
    """Delete temporary files that a crashed process left behind.

    Args:
        names: only temporary files of these target names, which no process is writing; None means all names.
        seconds: only files that have not been modified for this long.
    """
    with contextlib.suppress(OSError):  # the folder is missing or not writable
        for entry in list(os.scandir(folder)):
            match = _TEMPORARY.fullmatch(entry.name)
            if match and (names is None or match["name"] in names) and is_older_than(Path(entry.path), seconds):
                Path(entry.path).unlink(missing_ok=True)


def is_older_than(path: Path, seconds: float) -> bool:
    """Whether a file or folder has not been modified for ``seconds``; always true for 0."""
    return not seconds or time.time() - path.stat().st_mtime > seconds


def _keep_as(previous: Path, path: Path) -> None:
    """Let ``previous`` name the current file at ``path``, which keeps its own name too if hard links work."""
    link = _temporary_path(previous)
    try:
        os.link(path, link)
    except FileNotFoundError:  # no old file
        return
    except OSError:  # a file system without hard links: path is missing until the rename; readers try both names
        os.replace(path, previous)
        return
    try:
        os.replace(link, previous)
    finally:
        link.unlink(missing_ok=True)  # os.replace does nothing if both already name the same file


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
