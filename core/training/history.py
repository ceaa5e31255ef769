"""The metrics of a run by step: kept in memory for the page, and as JSON lines in the run's folder."""

import json
import logging
import threading
from pathlib import Path

from core.storage.atomic import write_atomically
from core.training.loop import EvaluationEvent, StepEvent

POINT_COLUMNS = ("step", "loss", "learning_rate", "gradient_norm")
EVALUATION_COLUMNS = ("step", "validation_loss", "token_accuracy", "exact_match")
MAX_POINTS = 5_000  # more than a chart has pixels; a longer run keeps every second, third … step
_log = logging.getLogger(__name__)


class History:
    """Loss, learning rate and gradient norm per step, validation metrics per evaluation. Thread-safe.

    Args:
        steps: planned steps of the run; above ``MAX_POINTS`` only every n-th step is kept. Evaluations all are.
    """

    def __init__(self, steps: int) -> None:
        self._stride = max(1, -(-steps // MAX_POINTS))
        self._rows: dict[tuple[str, ...], list[tuple]] = {POINT_COLUMNS: [], EVALUATION_COLUMNS: []}
        self._lock = threading.Lock()

    def add(self, event: StepEvent | EvaluationEvent) -> str | None:
        """Add the metrics of an event and return them as a JSON line; None if the step is not kept."""
        if isinstance(event, EvaluationEvent):
            columns, metrics = EVALUATION_COLUMNS, event.evaluation
            values = (metrics.loss, metrics.token_accuracy, metrics.exact_match)
        elif event.step % self._stride == 0:
            columns, values = POINT_COLUMNS, (event.loss, event.learning_rate, event.gradient_norm)
        else:
            return None
        row = (event.step, *map(_round, values))
        with self._lock:
            self._rows[columns].append(row)
        return json.dumps(dict(zip(columns, row, strict=True)))

    def points(self, *, since: int = -1) -> dict[str, list]:
        """Return the ``POINT_COLUMNS`` of steps after ``since``: {column: values}."""
        return self._after(POINT_COLUMNS, since)

    def evaluations(self, *, since: int = -1) -> dict[str, list]:
        """Return the ``EVALUATION_COLUMNS`` of evaluations after step ``since``: {column: values}."""
        return self._after(EVALUATION_COLUMNS, since)

    def rewind(self, step: int, *, evaluated_step: int) -> None:
        """Delete rows after ``step`` and evaluations after ``evaluated_step``, where the run resumes."""
        with self._lock:
            for columns, last in ((POINT_COLUMNS, step), (EVALUATION_COLUMNS, evaluated_step)):
                self._rows[columns] = [row for row in self._rows[columns] if row[0] <= last]

    def save(self, path: Path) -> None:
        """Write all rows to a file, atomically."""
        with self._lock:
            lines = [
                json.dumps(dict(zip(columns, row, strict=True))) for columns, rows in self._rows.items() for row in rows
            ]
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())

    @classmethod
    def load(cls, path: Path, steps: int) -> "History":
        """Read a file of JSON lines; a damaged line, such as a last one cut off by a crash, is skipped.

        A missing file gives an empty history.
        """
        history = cls(steps)
        text = path.read_text() if path.is_file() else ""
        for line in text.splitlines():
            try:
                row = json.loads(line)
                columns = POINT_COLUMNS if "loss" in row else EVALUATION_COLUMNS
                history._rows[columns].append(tuple(row[column] for column in columns))
            except (ValueError, TypeError, KeyError):
                _log.warning("%s: skipped a damaged line", path)
        return history

    def _after(self, columns: tuple[str, ...], since: int) -> dict[str, list]:
        with self._lock:
            rows = self._rows[columns]
            first = len(rows)
            while first and rows[first - 1][0] > since:
                first -= 1
            rows = rows[first:]
        return {name: [row[index] for row in rows] for index, name in enumerate(columns)}


def _round(value: float) -> float:
    """Round to six significant digits, more than a chart or a table shows."""
    return float(f"{value:.6g}")
