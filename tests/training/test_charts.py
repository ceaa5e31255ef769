"""Long histories are thinned without losing an extreme, alike for every chart, and whether or not a run was resumed."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evaluation.accuracy import Evaluation
from core.training import history as module
from core.training.history import EVALUATION_COLUMNS, POINT_COLUMNS, History, SeriesName
from core.training.loop import EvaluationEvent, StepEvent

VALUES = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]  # few, so that equal ones are frequent
EVERY = 3
NAMES: tuple[SeriesName, ...] = ("points", "evaluations")


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[float, ...]]:
    """Loss, gradient norm, validation loss and exact match of up to 200 steps."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = generator.choice(VALUES, size=(draw(st.integers(1, 200)), 4))
    values[generator.random(len(values)) < 0.1, 2] = math.nan  # as of a model whose weights overflow
    return [tuple(row) for row in values.tolist()]


@pytest.fixture(scope="module", autouse=True)
def small_groups() -> Iterator[None]:
    """Thin after a few steps instead of thousands: 16 groups are kept, and a chart has 4."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_KEPT_GROUPS", 16)
        patch.setattr(module, "_SERIES", {k: replace(each, chart_groups=4) for k, each in module._SERIES.items()})
        yield


def events(metrics: Sequence[tuple[float, ...]], first: int, last: int) -> Iterator[StepEvent | EvaluationEvent]:
    """The events of steps ``first`` to ``last``: the same ones whenever they are trained."""
    for step in range(first, last + 1):
        loss, norm, validation, exact = metrics[step - 1]
        yield StepEvent(step, loss, 0.1 / step, norm, 1.0)
        if step % EVERY == 0:
            yield EvaluationEvent(step, Evaluation(8, validation, 0.5, exact), is_best=False, train_loss=None)


def trained(metrics: Sequence[tuple[float, ...]]) -> History:
    history = History()
    for event in events(metrics, 1, len(metrics)):
        history.add(event)
    return history


def rewind(history: History, step: int) -> None:
    history.rewind(step, evaluated_step=step // EVERY * EVERY)


def content(history: History) -> str:
    """All that a history holds and shows; as text, in which NaN equals itself."""
    return repr([history.points(), history.evaluations(), *map(history.chart, NAMES)])


@dataclass
class Chart:
    """A client: it applies responses as the page does."""

    name: SeriesName
    width: int = 0
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def poll(self, history: History) -> int:
        """Ask for news; returns the number of rows that came."""
        since = self.rows[-1][0] if self.rows else -1
        update = history.chart(self.name, since=since, width=self.width)
        added = list(zip(*update["columns"].values(), strict=True))
        self.width = update["width"]
        self.rows = [row for row in self.rows if row[0] < update["from"]] + added
        return len(added)


@given(runs())
def test_the_extremes_of_every_group_are_in_the_chart(metrics):
    history = trained(metrics)
    chart = history.chart("points")
    width, columns = chart["width"], chart["columns"]
    assert tuple(columns) == POINT_COLUMNS
    assert columns["step"][0] == 1
    assert columns["step"][-1] == len(metrics)
    for start in range(0, len(metrics) + 1, width):
        group = [metrics[step - 1] for step in range(max(1, start), min(start + width, len(metrics) + 1))]
        shown = [at for at, step in enumerate(columns["step"]) if start <= step < start + width]
        for pick, name, index in ((min, "loss", 0), (max, "loss", 0), (max, "gradient_norm", 1)):
            if group:
                assert pick(columns[name][at] for at in shown) == pick(row[index] for row in group)
        assert len(shown) <= 4 + (start == 0)


@given(runs())
def test_the_extremes_of_evaluations_are_in_the_chart(metrics):
    chart = trained(metrics).chart("evaluations")
    width, columns = chart["width"], chart["columns"]
    assert tuple(columns) == EVALUATION_COLUMNS
    steps = range(EVERY, len(metrics) + 1, EVERY)
    assert (columns["step"][:1], columns["step"][-1:]) == (list(steps[:1]), list(steps[-1:]))
    for start in range(0, len(metrics) + 1, width):
        for index, name in ((2, "validation_loss"), (3, "exact_match")):
            group = [metrics[step - 1][index] for step in steps if step // width * width == start]
            shown = [columns[name][at] for at, step in enumerate(columns["step"]) if step // width * width == start]
            group, shown = ([value for value in values if not math.isnan(value)] for values in (group, shown))
            assert (min(shown, default=0), max(shown, default=0)) == (min(group, default=0), max(group, default=0))


@given(runs())
def test_the_width_is_the_smallest_with_few_enough_groups(metrics):
    history = trained(metrics)
    for name, first in (("points", 1), ("evaluations", EVERY)):
        last = len(metrics) // first * first
        chart = history.chart(name)
        widths = [2**power for power in range(10)]
        groups = {width: len({step // width for step in range(first, last + 1)}) for width in widths}
        assert chart["width"] == min(width for width in widths if groups[width] <= 4)
        assert len(chart["columns"]["step"]) <= (4 * 4 if name == "points" else 4 * 5) + 1


@given(runs(), st.data())
def test_a_chart_that_polled_at_any_moment_shows_what_a_new_one_shows(metrics, data):
    history, step = History(), 0
    charts = [Chart(name) for name in NAMES]
    while step < len(metrics):
        target = data.draw(st.integers(step + 1, len(metrics)))
        for event in events(metrics, step + 1, target):
            history.add(event)
        step = target
        if data.draw(st.booleans()):  # the run resumes from a state saved before
            step = data.draw(st.integers(step // 2, step))
            rewind(history, step)
        if data.draw(st.booleans()):
            for chart in charts:
                chart.poll(history)
                new = Chart(chart.name)
                new.poll(history)
                assert repr(chart) == repr(new)


@given(runs())
def test_a_poll_of_a_growing_run_returns_a_group_and_what_is_new(metrics):
    history, chart = History(), Chart("points")
    width = 0
    for step in range(1, len(metrics) + 1):
        for event in events(metrics, step, step):
            history.add(event)
        added = chart.poll(history)
        if chart.width == width:
            assert added <= 6
        width = chart.width
    assert chart.poll(history) <= 5


@given(metrics=runs(), data=st.data())
def test_a_resumed_history_ends_as_one_that_was_never_interrupted(metrics, data, tmp_path_factory):
    """The file is appended to and rewritten at any moments, cut at any byte, and rewound to any earlier state."""
    path: Path = tmp_path_factory.mktemp("resumed") / "metrics.jsonl"
    crash = data.draw(st.integers(1, len(metrics)))
    saved = data.draw(st.integers(0, crash))
    rewrites = data.draw(st.sets(st.integers(1, crash), max_size=3))
    history, text = History(), ""
    for event in events(metrics, 1, crash):
        text += history.add(event) + "\n"
        if event.step in rewrites:
            history.save(path)
            text = path.read_text()
    if saved < crash and crash not in rewrites:
        text = text[: len(text) - data.draw(st.integers(0, len(text.splitlines()[-1])))]
    path.write_text(text)
    resumed = History.load(path)
    rewind(resumed, saved)
    assert not resumed.points(since=saved)["step"]
    for event in events(metrics, saved + 1, len(metrics)):
        resumed.add(event)
    assert content(resumed) == content(trained(metrics))


@given(metrics=runs())
def test_a_file_loads_as_what_was_recorded_whether_written_line_by_line_or_at_once(metrics, tmp_path_factory):
    path: Path = tmp_path_factory.mktemp("loaded") / "metrics.jsonl"
    history = History()
    path.write_text("".join(history.add(event) + "\n" for event in events(metrics, 1, len(metrics))))
    assert content(History.load(path)) == content(history)
    history.save(path)
    assert content(History.load(path)) == content(history)


def test_a_rewound_run_is_sent_from_its_start():
    metrics = [(1.0, 1.0, 1.0, 1.0)] * 100
    history, chart = trained(metrics), Chart("points")
    chart.poll(history)
    rewind(history, 40)
    update = history.chart("points", since=100, width=chart.width)
    assert update["from"] == 0
    assert update["columns"]["step"][0] == 1
    rewind(history, 0)
    chart.poll(history)
    assert chart.rows == []


def test_values_have_five_significant_digits():
    history = History()
    history.add(StepEvent(1, 1.2345678, 0.00012345678, 1234.5678, 1.0))
    assert json.dumps(history.chart("points")) == json.dumps(
        {
            "width": 1,
            "from": 0,
            "columns": {"step": [1], "loss": [1.2346], "learning_rate": [0.00012346], "gradient_norm": [1234.6]},
        }
    )
