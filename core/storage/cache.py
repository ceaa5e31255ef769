"""Cache values computed from files until the files change."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class FileCache(Generic[T]):
    """Thread-safe LRU cache of at most ``size`` values, one per file path.

    Args:
        max_bytes: limit on the total size of the cached files on disk, except the latest one; None for no limit.
    """

    def __init__(self, size: int, *, max_bytes: int | None = None) -> None:
        self._size, self._max_bytes = size, max_bytes
        self._values: OrderedDict[Path, tuple[tuple[int, ...], T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: Path, load: Callable[[], T]) -> T:
        """Return the value of a file; call ``load`` only if the file has changed since the value was cached."""
        stamp = _stamp(path)
        with self._lock:
            if path in self._values and self._values[path][0] == stamp:
                self._values.move_to_end(path)
                return self._values[path][1]
        value = load()
        with self._lock:
            self._values[path] = (stamp, value)
            self._values.move_to_end(path)
            while len(self._values) > self._size or self._is_too_large():
                self._values.popitem(last=False)
        return value

    def _is_too_large(self) -> bool:
        if self._max_bytes is None or len(self._values) < 2:
            return False
        return sum(_size_of(stamp) for stamp, _ in self._values.values()) > self._max_bytes


def _size_of(stamp: tuple[int, ...]) -> int:
    return stamp[1] if stamp else 0


def _stamp(path: Path) -> tuple[int, ...]:
    """Return modification time, size and inode; every write changes at least one. () for a missing file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
