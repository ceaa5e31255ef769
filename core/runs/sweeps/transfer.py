"""A run's folder sent between machines that share no disk: all of its files at first, then those that have changed.

Files go in an order in which a transfer that breaks off leaves a run to resume: the training state after everything it
must not be ahead of, and ``run.json`` last.
"""

import contextlib
import os
from pathlib import Path, PurePosixPath

from core.runs import RunFolder
from core.storage.atomic import write_atomically
from core.storage.error_messages import short_repr
from core.storage.tensor_file import is_intact, previous_path

Files = dict[str, bytes]
"""Content by path in the run's folder, with slashes, in the order in which they are to be written."""

_LAST = ("last.safetensors", "run.json")


class Sender:
    """Reads the files of a run that have changed since it read them last; those there at the start have not changed.

    Files that replacing others leaves behind are not sent: who writes the newer file keeps the older one.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        kept = {previous_path(each).name for each in (folder.best, folder.last)}
        self._kept = frozenset(kept)
        self._sent = self._versions()

    def changed(self) -> Files:
        """Read what has changed."""
        versions = self._versions()
        names = [name for name, version in versions.items() if self._sent.get(name) != version]
        self._sent = versions
        return _read(self._folder.path, names)

    def _versions(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for name in _names(self._folder.path):
            if name not in self._kept:
                with contextlib.suppress(FileNotFoundError):  # another program's, such as a link to its latest log
                    status = (self._folder.path / name).stat()
                    found[name] = status.st_mtime_ns, status.st_size, status.st_ino
        return found


def read_files(folder: RunFolder) -> Files:
    """Read all files of a run but hidden ones, such as its lock."""
    return _read(folder.path, _names(folder.path))


def write_files(folder: RunFolder, files: Files) -> None:
    """Write files into a run's folder, each atomically; weights and training state keep their earlier version.

    Raises:
        ValueError: a path leaves the folder, or names a hidden file.
        OSError: a file cannot be written.
    """
    for name, content in files.items():
        path = _path_in(folder.path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        keeps = path in (folder.best, folder.last) and is_intact(path)
        write_atomically(path, content, previous=previous_path(path) if keeps else None)


def _names(folder: Path) -> list[str]:
    """Return the paths of the files that travel, in the order in which they are to be written."""
    names = []
    for path, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        inside = Path(path).relative_to(folder)
        names += [(inside / each).as_posix() for each in files if not each.startswith(".")]
    return sorted(names, key=lambda name: (_LAST.index(name) if name in _LAST else -1, name))


def _read(folder: Path, names: list[str]) -> Files:
    files = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            files[name] = (folder / name).read_bytes()
    return files


def _path_in(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or "\\" in name or any(part.startswith(".") for part in parts):
        raise ValueError(f"{short_repr(name, 200)} is not the path of a file of a run")
    return folder.joinpath(*parts)
