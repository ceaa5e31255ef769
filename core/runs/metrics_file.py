"""The metrics of a run in training: its history in memory, and the file that follows it line by line."""

import hashlib
from pathlib import Path

from core.training.history import History
from core.training.loop import EvaluationEvent, StepEvent


class MetricsFile:
    """Appends metrics to a file; written anew at first, so that it holds what ``history`` has.

    Attributes:
        history: metrics by step, growing.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, history: History) -> None:
        self.path, self.history = path, history
        self._unwritten_lines: list[str] = []
        self._is_complete = True
        self.history.save(path)
        self._num_lines = self.history.num_rows

    def add(self, event: StepEvent | EvaluationEvent) -> None:
        """Add the metrics of an event; ``flush`` writes them."""
        self._unwritten_lines.append(self.history.add(event))

    def flush(self, max_lines_per_row: int = 2) -> None:
        """Append new metrics; rewrite the whole file if an earlier append may have failed halfway.

        It is also rewritten when it would have more than ``max_lines_per_row`` lines for each row that the history of
        a long run keeps: the others are of steps that it has thinned out.

        Raises:
            OSError: the file cannot be written.
        """
        num_lines = self._num_lines + len(self._unwritten_lines)
        if self._is_complete and num_lines <= max_lines_per_row * self.history.num_rows:
            self._is_complete = False  # until the append below succeeds
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in self._unwritten_lines)
            self._num_lines = num_lines
        else:
            self.history.save(self.path)
            self._num_lines = self.history.num_rows
        self._is_complete = True
        self._unwritten_lines.clear()

    def sha256(self) -> str:
        """Return the SHA-256 of the file's content."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
