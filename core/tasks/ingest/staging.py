"""Staging area for uploaded pairs: kept until a run has its own copy, or until newer uploads replace them."""

import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from core.config import Preset
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.tasks.ingest.lines import check_unpacked_size
from core.tasks.ingest.pairs import IngestResult, Kinds
from core.tasks.ingest.preparing import PairFiles, prepare_preset

MAX_AGE_SECONDS = 3600.0
MAX_FILES = 20
MAX_UNPACKED_BYTES = 64 * 2**20  # of a stranger's file: no more than they can upload as it is


class StagingArea:
    """A temporary folder for uploaded pairs that no run has yet. It is deleted with the process.

    Args:
        max_pairs: pairs per upload; None for no limit.
    """

    def __init__(self, *, max_pairs: int | None = None) -> None:
        self.max_pairs = max_pairs
        self._folder = tempfile.TemporaryDirectory(prefix="attention-lab-pairs-")
        self._staged: deque[tuple[float, Path]] = deque()
        self._lock = threading.Lock()
        self._number = 0

    def stage(self, files: PairFiles, *, kinds: Kinds | None = None) -> tuple[IngestResult, Preset, Path]:
        """Import pairs and return their statistics, a preset named after their file, and the staged pairs file.

        Args:
            kinds: tokens of source and target; None chooses them by the pairs.

        Raises:
            InputError: the files hold no usable pairs.
        """
        if self.max_pairs is not None:
            _check_strangers_files(files)
        with self._lock:
            self._number += 1
            out = Path(self._folder.name) / f"{self._number}.tsv"
        result, preset = prepare_preset(files, out, kinds=kinds, max_pairs=self.max_pairs)
        with self._lock:
            self._staged.append((time.monotonic(), out))
            while len(self._staged) > MAX_FILES or time.monotonic() - self._staged[0][0] > MAX_AGE_SECONDS:
                self._staged.popleft()[1].unlink(missing_ok=True)
        return result, preset, out


def _check_strangers_files(files: PairFiles) -> None:
    """Refuse files that are small and hold any number of rows: compressed ones, and Parquet with equal rows."""
    held_out = [path for each in files.held_out for path in (each.path, each.targets)]
    for path in filter(None, [files.pairs, files.targets, *held_out]):
        if ".parquet" in map(str.lower, path.suffixes):
            raise InputError(f"file={short_repr(path.name)} is Parquet, which is not read here; save it as TSV or CSV")
        check_unpacked_size(path, MAX_UNPACKED_BYTES)
