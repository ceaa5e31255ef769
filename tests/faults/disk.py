"""A disk that can be told to fail at any call, and that remembers what was asked of it."""

import contextlib
import io
import os
from collections.abc import Iterator

CALLS = ("open", "read", "write", "flush", "fsync", "close", "link", "replace", "rename", "unlink", "mkdir", "folder")


class Disk:
    """Stands between Python and the file system while ``watched``.

    Attributes:
        log: (call, path or paths) of every call in order, by whatever thread.
        fail_at: the number of the call, from 1, that fails; 0 for none.
        error: its errno.
    """

    def __init__(self, *, fail_at: int = 0, error: int = 0) -> None:
        self.log: list[tuple] = []
        self.fail_at, self.error = fail_at, error
        self._paths: dict[int, str] = {}

    def note(self, call: str, *what: object) -> None:
        """Remember a call, and fail if it is its turn."""
        self.log.append((call, *(each if isinstance(each, bytes) else str(each) for each in what)))
        if len(self.log) == self.fail_at:
            raise OSError(self.error, os.strerror(self.error), str(what[0]) if what else None)

    @contextlib.contextmanager
    def watched(self) -> Iterator["Disk"]:  # noqa: C901 - one patch per system call
        """Let every call inside the block go through this disk."""
        kept = {name: getattr(os, name) for name in ("fsync", "link", "replace", "rename", "unlink", "mkdir", "open")}
        opened = io.open

        def open_file(path, mode="r", *rest, **options):
            if isinstance(path, int) or str(path).startswith("/proc"):
                return opened(path, mode, *rest, **options)
            self.note("open", path, mode)
            return _File(opened(path, mode, *rest, **options), self, str(path))

        def two(name):
            def call(first, second, **options):
                self.note(name, first, second)
                return kept[name](first, second, **options)

            return call

        def one(name, told):
            def call(path, *rest, **options):
                if not str(path).endswith(".lock"):
                    self.note(told, self._paths.get(path, path) if isinstance(path, int) else path)
                found = kept[name](path, *rest, **options)
                if name == "open":
                    self._paths[found] = str(path)
                return found

            return call

        try:
            io.open = open_file
            for name in ("link", "replace", "rename"):
                setattr(os, name, two(name))
            for name in ("unlink", "mkdir", "fsync"):
                setattr(os, name, one(name, name))
            os.open = one("open", "folder")
            yield self
        finally:
            io.open = opened
            for name, function in kept.items():
                setattr(os, name, function)

    def name(self, descriptor: int, path: str) -> None:
        """Remember what a file that ``fsync`` is asked for is called."""
        self._paths[descriptor] = path


class _File:
    """A file whose calls the disk sees."""

    def __init__(self, file, disk: Disk, path: str) -> None:
        self._file, self._disk, self._path = file, disk, path
        disk.name(file.fileno(), path)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __iter__(self):
        return iter(self._file)

    def __getattr__(self, name: str):
        return getattr(self._file, name)

    def read(self, *count):
        self._disk.note("read", self._path)
        return self._file.read(*count)

    def write(self, data):
        half = len(data) // 2
        self._file.write(data[:half])  # what fails may have been done in part
        self._disk.note("write", self._path, bytes(data) if not isinstance(data, str) else data.encode())
        return half + self._file.write(data[half:])

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        self._disk.note("flush", self._path)
        self._file.flush()

    def close(self):
        closed = self._file.closed
        self._file.close()
        if not closed:
            self._disk.note("close", self._path)
