"""The metric history is complete, bounded, thread-safe, and survives a truncated file."""

import itertools
import json
import threading

import pytest

from core.evaluation.accuracy import Evaluation
from core.training.history import EVALUATION_COLUMNS, MAX_POINTS, POINT_COLUMNS, History
from core.training.loop import EvaluationEvent, StepEvent


def step(number: int) -> StepEvent:
    return StepEvent(number, 1 / number, 0.001 * number, 2.0 * number, 1e4)


def evaluated(number: int) -> EvaluationEvent:
    return EvaluationEvent(number, Evaluation(16, 2.0 / (number + 1), 0.5, 0.25), is_best=True, train_loss=None)


@pytest.fixture
def history() -> History:
    """Steps 1 to 6, evaluations at 0, 3 and 6."""
    history = History(6)
    history.add(evaluated(0))
    for number in range(1, 7):
        history.add(step(number))
        if number % 3 == 0:
            history.add(evaluated(number))
    return history


def test_metrics_are_returned_by_column(history):
    points = history.points()
    assert tuple(points) == POINT_COLUMNS
    assert points["step"] == [1, 2, 3, 4, 5, 6]
    assert points["loss"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6], rel=1e-5)
    evaluations = history.evaluations()
    assert tuple(evaluations) == EVALUATION_COLUMNS
    assert evaluations["step"] == [0, 3, 6]
    assert evaluations["exact_match"] == [0.25] * 3


def test_since_returns_only_later_rows(history):
    assert history.points(since=4)["step"] == [5, 6]
    assert history.points(since=6)["step"] == []
    assert history.points(since=0)["step"] == [1, 2, 3, 4, 5, 6]
    assert history.evaluations(since=0)["step"] == [3, 6]
    assert history.evaluations(since=2)["step"] == [3, 6]


def test_add_returns_the_line_for_the_file():
    history = History(1)
    assert json.loads(history.add(step(1))) == {"step": 1, "loss": 1.0, "learning_rate": 0.001, "gradient_norm": 2.0}
    line = json.loads(history.add(evaluated(1)))
    assert line == {"step": 1, "validation_loss": 1.0, "token_accuracy": 0.5, "exact_match": 0.25}


def test_appended_lines_and_saved_files_load_alike(history, tmp_path):
    appended, saved = tmp_path / "appended.jsonl", tmp_path / "saved.jsonl"
    again = History(6)
    events = [evaluated(0), *[step(number) for number in range(1, 7)], evaluated(3), evaluated(6)]
    appended.write_text("".join(f"{again.add(event)}\n" for event in events))
    history.save(saved)
    for path in (appended, saved):
        loaded = History.load(path, 6)
        assert loaded.points() == history.points()
        assert loaded.evaluations() == history.evaluations()


def test_a_missing_file_is_an_empty_history(tmp_path):
    loaded = History.load(tmp_path / "metrics.jsonl", 5)
    assert loaded.points()["step"] == loaded.evaluations()["step"] == []


def test_a_truncated_last_line_is_skipped(history, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {n}, "loss": 1, "learning_rate": 1, "gradient_norm": 1}}\n' for n in (1, 2)))
    whole = path.read_text()
    for cut in range(2, 60):
        path.write_text(whole[:-cut])
        assert History.load(path, 6).points()["step"] == [1]


def test_rewinding_deletes_later_rows(history):
    history.rewind(4, evaluated_step=3)
    assert history.points()["step"] == [1, 2, 3, 4]
    assert history.evaluations()["step"] == [0, 3]
    history.rewind(3, evaluated_step=0)  # paused between step 3 and its evaluation
    assert history.points()["step"] == [1, 2, 3]
    assert history.evaluations()["step"] == [0]
    history.rewind(0, evaluated_step=-1)
    assert history.points()["step"] == history.evaluations()["step"] == []


@pytest.mark.parametrize("steps", [MAX_POINTS - 1, MAX_POINTS, MAX_POINTS + 1, 2 * MAX_POINTS, 12_345])
def test_a_long_run_keeps_a_bounded_number_of_evenly_spaced_points(steps):
    history = History(steps)
    kept = [number for number in range(1, steps + 1) if history.add(step(number))]
    assert history.points()["step"] == kept
    assert MAX_POINTS / 2 <= len(kept) <= MAX_POINTS
    assert len({late - early for early, late in itertools.pairwise(kept)}) == 1


def test_evaluations_are_all_kept():
    history = History(1_000_000)
    assert history.add(evaluated(7))
    assert history.evaluations()["step"] == [7]


def test_columns_read_during_writing_have_one_length():
    history, done = History(MAX_POINTS), threading.Event()

    def write() -> None:
        for number in range(1, MAX_POINTS + 1):
            history.add(step(number))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    last = 0
    while not done.is_set():
        points = history.points()
        assert len({len(column) for column in points.values()}) == 1
        assert len(points["step"]) >= last
        assert points["step"] == list(range(1, len(points["step"]) + 1))
        last = len(points["step"])
    writer.join()
    assert len(history.points()["step"]) == MAX_POINTS
