"""Index of the runs in a folder: what a list of thousands needs, read from a run's files only after a change."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
        self._entries: dict[str, tuple[int, int, RunListing | None]] = {}  # time of modification, inode, listing
        self._listings: tuple[RunListing, ...] = ()

    def listings(self) -> tuple[RunListing, ...]:
        """Return the runs that have a valid ``run.json`` and a preset, newest first, shipped ones last."""
        try:
            entries = self._current_entries()
        except FileNotFoundError:
            entries = {}
        if entries != self._entries:
            found = [listing for *_, listing in entries.values() if listing is not None]
            self._listings = tuple(sorted(found, key=lambda each: (each.shipped, -each.created)))
        self._entries = entries
        return self._listings

    def _current_entries(self) -> dict[str, tuple[int, int, RunListing | None]]:
        settled_before = time.time() - _SETTLED_SECONDS
        before, entries = self._entries, {}
        with _scandir(self._root) as folders:
            for each in folders:
                name = each.name
                known = before.get(name)
                if known is None and not _NAME.fullmatch(name):
                    continue
                try:
                    status = each.stat()
                except OSError:  # deleted in the meantime, or a broken link
                    continue
                if known is None or known[0] != status.st_mtime_ns or known[1] != status.st_ino:
                    is_settled = status.st_mtime < settled_before
                    stamp = (status.st_mtime_ns, status.st_ino) if is_settled else (0, 0)
                    known = *stamp, _read(self._root, name)
                entries[name] = known
        return entries


@contextmanager
def _scandir(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Open a folder; where the system can, so that the status of an entry is found without walking its whole path."""
    if os.scandir not in os.supports_fd:
        with os.scandir(folder) as entries:
            yield entries
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


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
