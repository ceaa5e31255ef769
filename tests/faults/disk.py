"""A fake disk that logs every file-system call and can fail at any one of them."""

import contextlib
import io
import os
from collections.abc import Iterator

CALLS = ("open", "read", "write", "flush", "fsync", "close", "link", "replace", "rename", "unlink", "mkdir", "folder")


class Disk:
    """Intercepts Python's file-system calls inside ``with disk.watched():``.

    Attributes:
        log: (call, path or paths) of every call in order, from any thread.
        fail_at: the number of the call, from 1, that fails; 0 for none.
        error: the errno of the failure.
    """

    def __init__(self, *, fail_at: int = 0, error: int = 0) -> None:
        self.log: list[tuple] = []
        self.fail_at, self.error = fail_at, error
        self._paths: dict[int, str] = {}

    def note(self, call: str, *arguments: object) -> None:
        """Log a call, and raise OSError if it is number ``fail_at``."""
        self.log.append((call, *(each if isinstance(each, bytes) else str(each) for each in arguments)))
        if len(self.log) == self.fail_at:
            raise OSError(self.error, os.strerror(self.error), str(arguments[0]) if arguments else None)

    @contextlib.contextmanager
    def watched(self) -> Iterator["Disk"]:  # noqa: C901 - one patch per system call
        """Patch ``os`` and ``io.open`` so that every call inside the block goes through this disk."""
        originals = {
            name: getattr(os, name) for name in ("fsync", "link", "replace", "rename", "unlink", "mkdir", "open")
        }
        original_open = io.open

        def open_file(path, mode="r", *rest, **options):
            if isinstance(path, int) or str(path).startswith("/proc"):
                return original_open(path, mode, *rest, **options)
            self.note("open", path, mode)
            return _File(original_open(path, mode, *rest, **options), self, str(path))

        def two(name):
            def call(first, second, **options):
                self.note(name, first, second)
                return originals[name](first, second, **options)

            return call

        def one(name, call_name):
            def call(path, *rest, **options):
                if not str(path).endswith(".lock"):
                    self.note(call_name, self._paths.get(path, path) if isinstance(path, int) else path)
                result = originals[name](path, *rest, **options)
                if name == "open":
                    self._paths[result] = str(path)
                return result

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
            io.open = original_open
            for name, function in originals.items():
                setattr(os, name, function)

    def name(self, descriptor: int, path: str) -> None:
        """Remember the path of a file descriptor, for the log of ``fsync``."""
        self._paths[descriptor] = path


class _File:
    """A file that passes its calls to the disk."""

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
        self._file.write(data[:half])  # a write that fails may have been done in part
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
