"""Where pairs that somebody brought are kept: each run has its own copy, and pairs are known by their SHA-256.

A preset names its pairs by that number, which says nothing of where they are. Whoever makes or reads a run's folder
says so here, and the task that is built from the preset asks here.
"""

import hashlib
import threading
from pathlib import Path

from core.storage.errors import LabError

FILE = "pairs.tsv"  # in a run's folder
_known: dict[str, list[Path]] = {}
_checked: dict[Path, tuple[int, int, str]] = {}  # size, time of change and hash of files that were read
_lock = threading.Lock()


class PairsError(LabError):
    """Pairs that a preset names are not here."""


def beside(preset: Path) -> Path:
    """Return where the pairs of a preset in a file of its own stand: beside it."""
    return preset.with_suffix(".pairs.tsv")


def remember(sha256: str, path: Path) -> None:
    """Note that pairs are, or may be, in a file."""
    with _lock:
        places = _known.setdefault(sha256, [])
        if path not in places:
            places.append(path)


def path_of(sha256: str) -> Path:
    """Return a file that holds pairs, after a look at whether it does.

    Raises:
        PairsError: they are nowhere.
    """
    with _lock:
        places = list(_known.get(sha256, ()))
    found = next((path for path in places if hash_of(path) == sha256), None)
    with _lock:
        _known[sha256] = [path for path in places if path.exists()]
    if found is None:
        raise PairsError(
            f"task.data={sha256[:12]}…: the pairs with this SHA-256 are not here; a run keeps its own, "
            "and a preset NAME.yaml has them in NAME.pairs.tsv beside it"
        )
    return found


def hash_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, worked out once for as long as it stays the same; None if there is no such file."""
    try:
        stat = path.stat()
        known = _checked.get(path)
        if known is None or known[:2] != (stat.st_size, stat.st_mtime_ns):
            with path.open("rb") as file:
                known = (stat.st_size, stat.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest())
            _checked[path] = known
        return known[2]
    except OSError:
        return None
