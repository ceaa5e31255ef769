"""Pairs that somebody looks at: held until a run keeps them, or until newer ones need the room."""

import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from core.config import Preset
from core.tasks.ingest.intake import Intake
from core.tasks.ingest.preparing import Brought, prepared
from core.text.tokenizers import TokenKind

HELD_SECONDS = 3600.0
HELD_FILES = 20


class Desk:
    """A folder of its own for pairs that no run has yet; it goes with the process, and old pairs go before.

    Args:
        max_pairs: that may be taken in at once; None is no limit.
    """

    def __init__(self, *, max_pairs: int | None = None) -> None:
        self.max_pairs = max_pairs
        self._folder = tempfile.TemporaryDirectory(prefix="attention-lab-pairs-")
        self._held: deque[tuple[float, Path]] = deque()
        self._lock = threading.Lock()
        self._number = 0

    def lay_out(self, brought: Brought, *, kinds: tuple[TokenKind, TokenKind]) -> tuple[Intake, Preset, Path]:
        """Take pairs in, hold them, and return what was found, a preset that learns them, and the pairs file.

        Raises:
            InputError: there is nothing to be learned in the files.
        """
        with self._lock:
            self._number += 1
            out = Path(self._folder.name) / f"{self._number}.tsv"
        found, preset = prepared(brought, out, kinds=kinds, name="own-data", max_pairs=self.max_pairs)
        with self._lock:
            self._held.append((time.monotonic(), out))
            while len(self._held) > HELD_FILES or time.monotonic() - self._held[0][0] > HELD_SECONDS:
                self._held.popleft()[1].unlink(missing_ok=True)
        return found, preset, out
