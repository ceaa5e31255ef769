"""Remember what was read from a file until the file changes."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class FileCache(Generic[T]):
    """Values made from files, at most ``size`` of them, the least recently used dropped first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Path, tuple[tuple[int, ...], T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: Path, make: Callable[[], T]) -> T:
        """Return the value of a file, calling ``make`` only if the file changed since it was last made."""
        stamp = _stamp(path)
        with self._lock:
            if path in self._values and self._values[path][0] == stamp:
                self._values.move_to_end(path)
                return self._values[path][1]
        value = make()
        with self._lock:
            self._values[path] = (stamp, value)
            self._values.move_to_end(path)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what changes whenever a file is replaced or grows; () where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
