"""The metrics of a run by step: kept in memory for the page, and as JSON lines in the run's folder."""

import hashlib
import json
import logging
import math
import threading
from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import from_json

from core.config.counting import counted
from core.evaluation.metrics import METRIC_NAME
from core.storage.atomic import write_atomically
from core.training.loop import EvaluationEvent, StepEvent
from core.training.overfitting import SEVERAL, describe_overfitting
from core.training.thinning import Extreme, Row, group_start, group_width, holds_all, step_of, thin

if TYPE_CHECKING:
    import pandas as pd

POINT_COLUMNS = ("step", "loss", "learning_rate", "gradient_norm")
NOT_ALWAYS_KNOWN = ("learning_rate", "gradient_norm", "exact_match")  # of a training by a user's own loop: NaN
EVALUATION_COLUMNS = ("step", "validation_loss", "token_accuracy", "exact_match")
FREE_RUNNING_LOSS = "free_running_loss"  # an additional column of evaluations, if the preset measures it
QUALITY_COLUMNS = ("bleu", "chrf")  # additional columns of evaluations, if the answers have BLEU
ERROR_COLUMNS = ("error_rate", "token_error_rate")  # additional columns of evaluations, if an error rate decides
TRAINING_COLUMNS = (
    "train_token_accuracy",
    "train_exact_match",
)  # columns that older files lack
OPTIONAL_COLUMNS = (FREE_RUNNING_LOSS, *QUALITY_COLUMNS, *ERROR_COLUMNS, *TRAINING_COLUMNS)
TRAIN_LOSS = "train_loss"  # mean since the previous evaluation; None at the first one and in older files
METRICS_COLUMN = "metrics"  # an additional entry of evaluations: a plugin's metrics by name
MAX_POINTS = 8_000  # approximate number of kept rows of steps; a shorter run keeps all of them
RESERVED_COLUMNS = (  # no names of metrics
    *POINT_COLUMNS,  # ``History.table`` joins both series
    *EVALUATION_COLUMNS,
    *OPTIONAL_COLUMNS,
    TRAIN_LOSS,
    METRICS_COLUMN,
)
_MAX_METRICS = 64  # of one evaluation that are read from a file
_log = logging.getLogger(__name__)

SeriesName = Literal["points", "evaluations"]


@dataclass(frozen=True)
class _Series:
    """The columns of a series and how to thin it; the same for all runs.

    Attributes:
        optional: columns that some runs lack; their values may be None. The value of ``METRICS_COLUMN`` is a dict.
        extremes: the rows of a group of steps that thinning keeps, besides the last row.
        chart_groups: groups of steps in a chart, at most.
    """

    columns: tuple[str, ...]
    optional: tuple[str, ...]
    extremes: tuple[Extreme, ...]
    chart_groups: int


_SERIES: dict[SeriesName, _Series] = {
    "points": _Series(POINT_COLUMNS, (), ((min, 1), (max, 1), (max, 3)), 400),
    "evaluations": _Series(
        EVALUATION_COLUMNS,
        (*OPTIONAL_COLUMNS, TRAIN_LOSS, METRICS_COLUMN),
        ((min, 1), (max, 1), (min, 3), (max, 3)),
        200,
    ),
}
_KEPT_GROUPS = MAX_POINTS // 4 + 1  # steps count from 1, so the group of MAX_POINTS is one more


class History:
    """Loss, learning rate and gradient norm per step, validation metrics per evaluation. Thread-safe.

    After more than ``MAX_POINTS`` steps, each group of consecutive steps keeps the steps with the lowest loss, the
    highest loss and the highest gradient norm, and the last step; groups become wider during the run. The selection
    depends only on the metrics, not on where a run was stopped and resumed. All evaluations are kept.

    Attributes:
        damage: what is wrong with the file that it was loaded from; "" if nothing is.
    """

    def __init__(self) -> None:
        self.damage = ""
        self._rows: dict[SeriesName, list[Row]] = {"points": [], "evaluations": []}
        self._width = 1  # steps in a group when points were last thinned
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {counted(self.num_rows, 'row')}>"

    @property
    def num_rows(self) -> int:
        """The number of kept steps and evaluations."""
        with self._lock:
            return sum(map(len, self._rows.values()))

    def add(self, event: StepEvent | EvaluationEvent) -> str:
        """Add the metrics of an event and return them as a JSON line."""
        name: SeriesName
        if isinstance(event, EvaluationEvent):
            name, metrics = "evaluations", event.evaluation
            values: tuple[float | None, ...] = (metrics.loss, metrics.token_accuracy, metrics.exact_match)
            values += tuple(getattr(metrics, name) for name in OPTIONAL_COLUMNS)
            named = {name: _rounded(value, 6) for name, value in metrics.metrics.items()}
            further: Row = (_rounded(event.train_loss, 6), named or None)
        else:
            name, values, further = "points", (event.loss, event.learning_rate, event.gradient_norm), ()
        row = (event.step, *(_rounded(value, 6) for value in values), *further)
        with self._lock:
            self._rows[name].append(row)
            if name == "points":
                self._thin_last_group()
        return _as_line(name, row)

    def points(self, *, since: int = -1) -> dict[str, list]:
        """Return the ``POINT_COLUMNS`` of the kept steps after ``since``: {column: values}."""
        return _as_columns("points", self._after("points", since))

    def evenly_spaced_points(self) -> dict[str, list]:
        """Return ``points`` without the extremes, one per group of steps: for averages, which extremes would bias."""
        rows = self._after("points", -1)
        width = group_width(rows, _KEPT_GROUPS)
        if not holds_all(width, _SERIES["points"].extremes):
            rows = list({step_of(row) // width: row for row in rows}.values())  # the last of each group
        return _as_columns("points", rows)

    def evaluations(self, *, since: int = -1) -> dict[str, list]:
        """Return the ``EVALUATION_COLUMNS`` of evaluations after step ``since``: {column: values}.

        There are also the ``OPTIONAL_COLUMNS``, and one per metric of a plugin, if an evaluation has them.
        """
        columns = _as_columns("evaluations", self._after("evaluations", since))
        by_evaluation = [metrics or {} for metrics in columns.pop(METRICS_COLUMN, [])]
        names = dict.fromkeys(name for metrics in by_evaluation for name in metrics)
        return columns | {name: [metrics.get(name) for metrics in by_evaluation] for name in names}

    def table(self) -> "pd.DataFrame":
        """Return both series as one table.

        Returns:
            A row for each training step that is kept and each evaluation, indexed by ``step``, with the float columns
            ``loss``, ``learning_rate``, ``gradient_norm``, ``validation_loss``, ``token_accuracy`` and ``exact_match``,
            and those that only some runs have, such as ``bleu``; NaN where a metric was not measured. Losses are in
            nats per token, accuracies 0-1.
        """
        import pandas as pd

        series = (pd.DataFrame(each).set_index("step") for each in (self.points(), self.evaluations()))
        return pd.concat(series, axis="columns").sort_index().astype(float)

    def evaluation_at(self, step: int) -> dict[str, float | None] | None:
        """Return the columns of the evaluation at a step, without the step and metrics of plugins; None without one."""
        series = _SERIES["evaluations"]
        with self._lock:
            rows = self._rows["evaluations"]
            index = bisect_right(rows, step, key=step_of) - 1
            if index < 0 or step_of(rows[index]) != step:
                return None
            columns = dict(zip((series.columns + series.optional)[1:], rows[index][1:], strict=True))
        del columns[METRICS_COLUMN]
        return columns

    def overfitting(self, best_step: int | None) -> str:
        """Return one sentence if the run is overfitting since its best step; see ``core.training.overfitting``."""
        best = None if best_step is None else self.evaluation_at(best_step)
        if best_step is None or best is None:
            return ""
        with self._lock:
            rows = self._rows["evaluations"]
            after = rows[bisect_right(rows, best_step, key=step_of) :]
        steps = [step_of(row) for row in after]
        latest = [row for step in steps[-SEVERAL:] if (row := self.evaluation_at(step))]
        if best_step == 0 and steps:  # no loss was measured before the first update
            best |= {TRAIN_LOSS: (self.evaluation_at(steps[0]) or {}).get(TRAIN_LOSS)}
        return describe_overfitting(best_step, best, latest)

    def chart(self, name: SeriesName, *, since: int = -1, width: int = 0) -> dict[str, Any]:
        """Return the rows that a chart has to replace and add to show a series, thinned.

        The steps so far are divided into groups of ``width`` consecutive steps, a power of two: at most 400 groups of
        points, 200 of evaluations. The chart shows the following rows of each group: those with the lowest and the
        highest loss, those with the highest gradient norm or the lowest and the highest exact match, and the last row.
        It also shows the first row of all.

        Args:
            name: "points" or "evaluations".
            since: last step of the chart; -1 for none.
            width: the width returned with that step; 0 for none.

        Returns:
            {"width": width, "from": step, "columns": {column: values}}: the chart drops its rows from that step on, and
            appends these, of 5 significant digits. "from" is 0 if the chart has no rows, the width has changed, or the
            run was rewound to before ``since``.
        """
        series = _SERIES[name]
        with self._lock:
            rows = self._rows[name]
            wanted = group_width(rows, series.chart_groups)
            is_known = width == wanted and bool(rows) and 0 <= since <= step_of(rows[-1])
            first = group_start(rows, since, wanted) if is_known else 0
            rows = rows[first:]
        shown = thin(rows, wanted, series.extremes, keep_first=first == 0)
        columns = _as_columns(name, shown)
        for column in (METRICS_COLUMN, TRAIN_LOSS):  # the chart has all training losses
            columns.pop(column, None)
        for column, values in columns.items():
            columns[column] = values if column == "step" else [_rounded(value, 5) for value in values]
        return {"width": wanted, "from": since // wanted * wanted if is_known else 0, "columns": columns}

    def rewind(self, step: int, *, evaluated_step: int) -> None:
        """Delete rows after ``step`` and evaluations after ``evaluated_step``, where the run resumes.

        The group that contains ``step`` may lack rows until the run has repeated the deleted steps.
        """
        lasts: dict[SeriesName, int] = {"points": step, "evaluations": evaluated_step}
        with self._lock:
            for name, last in lasts.items():
                rows = self._rows[name]
                self._rows[name] = rows[: bisect_right(rows, last, key=step_of)]

    def save(self, path: Path) -> None:
        """Write all rows to a file, atomically."""
        with self._lock:
            copies = [(name, rows[:]) for name, rows in self._rows.items()]
        lines = [_as_line(name, row) for name, rows in copies for row in rows]
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())

    @classmethod
    def load(cls, path: Path, *, sha256: str | None = None) -> "History":
        """Read a file of JSON lines; a damaged line, such as a last one cut off by a crash, is skipped.

        A missing file gives an empty history.

        Args:
            sha256: of the whole file; ``damage`` says if it is another. None checks no more than the lines.
        """
        content = path.read_bytes() if path.is_file() else b""
        text = content.decode(errors="replace")  # a line with a byte that is not UTF-8 is damaged, the others are not
        rows: dict[SeriesName, dict[int, Row]] = {"points": {}, "evaluations": {}}
        values_of = {name: itemgetter(*series.columns) for name, series in _SERIES.items()}
        nothing: dict[SeriesName, Row] = {name: (None,) * len(series.optional) for name, series in _SERIES.items()}
        num_damaged = 0
        for row in _parsed(text):
            try:
                name: SeriesName = "points" if "loss" in row else "evaluations"
                if len(row) < len(POINT_COLUMNS) or (name == "evaluations" and "exact_match" not in row):
                    row = dict.fromkeys(NOT_ALWAYS_KNOWN, math.nan) | row
                step, first, second, third = values_of[name](row)
                further = nothing[name]
                if len(row) > 4:  # most rows have no other keys; long runs have 100,000 rows
                    further = tuple(_optional_value(column, row.get(column)) for column in _SERIES[name].optional)
                rows[name][int(step)] = (int(step), float(first), float(second), float(third), *further)
            except (ValueError, TypeError, KeyError, OverflowError):  # None is no row either
                _log.warning("%s: skipped a damaged line", path)
                num_damaged += 1
        history = cls()
        if text and not text.endswith("\n"):
            num_damaged -= 1  # a crash cut the last line off
        if num_damaged > 0:
            history.damage = f"{path.name} is damaged: {num_damaged:,} of its lines were skipped"
        elif sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            history.damage = f"{path.name} was changed after it was written, so the curves may be wrong"
        for name, by_step in rows.items():
            history._rows[name] = sorted(by_step.values(), key=step_of)
        history._thin()
        return history

    def _thin(self) -> None:
        rows = self._rows["points"]
        self._width = group_width(rows, _KEPT_GROUPS)
        self._rows["points"] = thin(rows, self._width, _SERIES["points"].extremes)

    def _thin_last_group(self) -> None:
        """Thin all groups if there are too many, otherwise the group of the last step."""
        rows, extremes = self._rows["points"], _SERIES["points"].extremes
        if group_width(rows, _KEPT_GROUPS) != self._width:
            self._thin()
        elif not holds_all(self._width, extremes):
            start = group_start(rows, step_of(rows[-1]), self._width)
            rows[start:] = thin(rows[start:], self._width, extremes, keep_first=start == 0)

    def _after(self, name: SeriesName, since: int) -> list[Row]:
        with self._lock:
            rows = self._rows[name]
            return rows[bisect_right(rows, since, key=step_of) :]


def _parsed(text: str) -> list[Any]:
    """Return the value of each JSON line, or None if it is damaged."""
    try:
        return from_json(f"[{text.strip().replace(chr(10), ',')}]")  # five times as fast as json, line by line
    except ValueError:
        return [_parsed_line(line) for line in text.splitlines()]


def _parsed_line(line: str) -> Any:
    try:
        return from_json(line)
    except ValueError:
        return None


def _as_columns(name: SeriesName, rows: list[Row]) -> dict[str, list]:
    series = _SERIES[name]
    columns = {column: [row[index] for row in rows] for index, column in enumerate(series.columns + series.optional)}
    for column in columns.keys() & set(NOT_ALWAYS_KNOWN):
        columns[column] = [None if math.isnan(value) else value for value in columns[column]]
    return {
        column: values
        for column, values in columns.items()
        if column in series.columns or any(value is not None for value in values)
    }


def _as_line(name: SeriesName, row: Row) -> str:
    series = _SERIES[name]
    values = dict(zip(series.columns + series.optional, row, strict=True))
    known = {column: value for column, value in values.items() if value is not None}
    return json.dumps({column: value for column, value in known.items() if not _is_unknown(column, value)})


def _is_unknown(column: str, value: Any) -> bool:
    return column in NOT_ALWAYS_KNOWN and math.isnan(value)


def _optional_value(column: str, value: Any) -> float | dict[str, float] | None:
    if value is None or column != METRICS_COLUMN:
        return None if value is None else float(value)
    if (
        not isinstance(value, dict)
        or len(value) > _MAX_METRICS
        or not all(METRIC_NAME.fullmatch(name) for name in value)
    ):
        raise ValueError(f"{METRICS_COLUMN} are not named as core.plugins names them")
    return {name: float(number) for name, number in value.items() if name not in RESERVED_COLUMNS}


def _rounded(value: float | None, digits: int) -> float | None:
    """Round to significant digits; six are more than a chart or a table shows."""
    return None if value is None else float(f"{value:.{digits}g}")
