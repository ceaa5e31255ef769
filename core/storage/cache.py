"""Cache values computed from files until the files change."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class FileCache(Generic[T]):
    """Thread-safe LRU cache of at most ``size`` values, one per file path."""

    def __init__(self, size: int) -> None:
        self._size = size
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
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value


def _stamp(path: Path) -> tuple[int, ...]:
    """Return modification time, size and inode, one of which changes with every write; () for a missing file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
