"""Index of the runs in a folder: what a list of thousands needs, read from a run's files only after a change."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from core.config import NAME_PATTERN
from core.runs import RunError, RunFolder
from core.server.ownership import Ownership, read_ownership

_SETTLED_SECONDS = 1.0  # a folder that changed later may change again without another time of modification
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True)
class RunListing:
    """A run as listed: its name, its owner, and whether it is shipped with the program."""

    name: str
    ownership: Ownership
    shipped: bool
    created: float = 0.0  # seconds since 1970; thousands of numbers are sorted faster than times


class RunIndex:
    """The runs in a folder. Every write renames a file into a run's folder, which changes the folder's own times.

    A file that is edited in place by other programs is noticed with the folder's next change. Not thread-safe.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._entries: dict[str, tuple[tuple[int, int], RunListing | None]] = {}

    def listings(self) -> list[RunListing]:
        """Return the runs that have a valid ``run.json`` and a preset, newest first."""
        settled_before = time.time() - _SETTLED_SECONDS
        entries: dict[str, tuple[tuple[int, int], RunListing | None]] = {}
        try:
            with os.scandir(self._root) as folders:
                for each in folders:
                    if not _NAME.fullmatch(each.name):
                        continue
                    try:
                        status = each.stat()
                    except OSError:  # deleted in the meantime, or a broken link
                        continue
                    stamp = status.st_mtime_ns, status.st_ino
                    known = self._entries.get(each.name)
                    if known is None or known[0] != stamp:
                        is_settled = status.st_mtime < settled_before
                        known = stamp if is_settled else (0, 0), _read(self._root, each.name)
                    entries[each.name] = known
        except FileNotFoundError:
            pass
        self._entries = entries
        found = [listing for _, listing in entries.values() if listing is not None]
        return sorted(found, key=lambda each: each.created, reverse=True)


def _read(root: Path, name: str) -> RunListing | None:
    """Return a run's listing; None if it cannot be listed. Its preset, which takes longest to read, is not read."""
    folder = RunFolder(root, name)
    try:
        info = folder.written_info()
    except RunError:
        return None
    if not (folder.has_preset() or folder.best.exists()):
        return None
    return RunListing(name, read_ownership(folder), info.shipped, info.created.timestamp())
