"""Write files so that a crash leaves either the old one or the new one, never half of either."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Collection
from pathlib import Path

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")


def write_atomically(path: Path, data: bytes | bytearray, *, previous: Path | None = None) -> None:
    """Replace a file's content: temporary name, fsync, rename, fsync of the folder.

    Args:
        previous: where the old file is kept, if there is one; at no instant are both gone.

    Raises:
        OSError: the disk is full or the folder cannot be written to; the old file is then untouched.
    """
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None:
            _keep(path, previous)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder last through a power cut, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_temporaries(folder: Path, *, names: Collection[str] | None = None, seconds: float = 0.0) -> None:
    """Delete temporary files whose writer died before it could rename them.

    Args:
        names: of the files they were to become, which nobody writes now; None stands for any.
        seconds: how long they have not been written to, at least.
    """
    with contextlib.suppress(OSError):  # a folder that is not there, or is not ours to tidy
        for entry in list(os.scandir(folder)):
            found = _TEMPORARY.fullmatch(entry.name)
            if found and (names is None or found["name"] in names) and is_older(Path(entry.path), seconds):
                Path(entry.path).unlink(missing_ok=True)


def is_older(path: Path, seconds: float) -> bool:
    """Tell whether a file or folder has not been changed for that long."""
    return not seconds or time.time() - path.stat().st_mtime > seconds


def _keep(path: Path, previous: Path) -> None:
    """Give the file a second name, in place of what had that name."""
    link = _temporary(previous)
    try:
        os.link(path, link)
    except FileNotFoundError:  # nothing to keep yet
        return
    except OSError:  # a file system without hard links: whoever reads looks for both names
        os.replace(path, previous)
        return
    try:
        os.replace(link, previous)
    finally:
        link.unlink(missing_ok=True)  # still there if both were names of one file already: then nothing is renamed


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
