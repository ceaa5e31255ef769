"""The figures of a run over its steps: kept in memory for the page, and as JSON lines in the run's folder."""

import json
import logging
import threading
from pathlib import Path

from core.storage.atomic import write_atomically
from core.training.loop import EvaluationEvent, StepEvent

POINT_COLUMNS = ("step", "loss", "learning_rate", "gradient_norm")
EVALUATION_COLUMNS = ("step", "validation_loss", "token_accuracy", "exact_match")
MAX_POINTS = 5_000  # more than a chart is wide; a longer run keeps every second, third … step
_log = logging.getLogger(__name__)


class History:
    """Loss, learning rate and gradient norm by step; validation figures by evaluation. Safe to read while added to."""

    def __init__(self, steps: int) -> None:
        self._stride = max(1, -(-steps // MAX_POINTS))
        self._rows: dict[tuple[str, ...], list[tuple]] = {POINT_COLUMNS: [], EVALUATION_COLUMNS: []}
        self._lock = threading.Lock()

    def add(self, event: StepEvent | EvaluationEvent) -> str | None:
        """Add what an event tells and return it as a JSON line, or None where it is thinned out."""
        if isinstance(event, EvaluationEvent):
            figures = event.evaluation
            columns = EVALUATION_COLUMNS
            row = (event.step, _short(figures.loss), _short(figures.token_accuracy), _short(figures.exact_match))
        elif event.step % self._stride == 0:
            columns = POINT_COLUMNS
            row = (event.step, _short(event.loss), _short(event.learning_rate), _short(event.gradient_norm))
        else:
            return None
        with self._lock:
            self._rows[columns].append(row)
        return json.dumps(dict(zip(columns, row, strict=True)))

    def points(self, *, since: int = -1) -> dict[str, list]:
        """Return training figures after step ``since``, a list a column: step, loss, learning_rate, gradient_norm."""
        return self._after(POINT_COLUMNS, since)

    def evaluations(self, *, since: int = -1) -> dict[str, list]:
        """Return step, validation_loss, token_accuracy and exact_match after step ``since``, a list a column."""
        return self._after(EVALUATION_COLUMNS, since)

    def rewind(self, step: int, *, evaluated_step: int) -> None:
        """Forget what came after a step: the run goes on from there."""
        with self._lock:
            for columns, last in ((POINT_COLUMNS, step), (EVALUATION_COLUMNS, evaluated_step)):
                self._rows[columns] = [row for row in self._rows[columns] if row[0] <= last]

    def save(self, path: Path) -> None:
        """Write all rows anew, atomically."""
        with self._lock:
            lines = [
                json.dumps(dict(zip(columns, row, strict=True))) for columns, rows in self._rows.items() for row in rows
            ]
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())

    @classmethod
    def load(cls, path: Path, steps: int) -> "History":
        """Read the rows of a file; lines that are damaged, such as a last one that a crash cut off, are left out."""
        history = cls(steps)
        text = path.read_text() if path.is_file() else ""
        for line in text.splitlines():
            try:
                row = json.loads(line)
                columns = POINT_COLUMNS if "loss" in row else EVALUATION_COLUMNS
                history._rows[columns].append(tuple(row[column] for column in columns))
            except (ValueError, TypeError, KeyError):
                _log.warning("%s: a damaged line is left out", path)
        return history

    def _after(self, columns: tuple[str, ...], since: int) -> dict[str, list]:
        with self._lock:
            rows = self._rows[columns]
            first = len(rows)
            while first and rows[first - 1][0] > since:
                first -= 1
            rows = rows[first:]
        return {name: [row[place] for row in rows] for place, name in enumerate(columns)}


def _short(value: float) -> float:
    """Six significant digits: all that a chart or a table shows."""
    return float(f"{value:.6g}")
