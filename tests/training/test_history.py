"""The metric history is complete in short runs, bounded in long ones, thread-safe, and survives a truncated file."""

import itertools
import json
import threading

import pytest

from core.evaluation.accuracy import Evaluation
from core.training.history import (
    EVALUATION_COLUMNS,
    FREE_RUNNING_LOSS,
    MAX_POINTS,
    POINT_COLUMNS,
    QUALITY_COLUMNS,
    History,
)
from core.training.loop import EvaluationEvent, StepEvent


def step(number: int) -> StepEvent:
    return StepEvent(number, 1 / number, 0.001 * number, 2.0 * number, 1e4)


def evaluated(number: int) -> EvaluationEvent:
    return EvaluationEvent(number, Evaluation(16, 2.0 / (number + 1), 0.5, 0.25), is_best=True, train_loss=None)


@pytest.fixture
def history() -> History:
    """Steps 1 to 6, evaluations at 0, 3 and 6."""
    history = History()
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
    history = History()
    assert json.loads(history.add(step(1))) == {"step": 1, "loss": 1.0, "learning_rate": 0.001, "gradient_norm": 2.0}
    line = json.loads(history.add(evaluated(1)))
    assert line == {"step": 1, "validation_loss": 1.0, "token_accuracy": 0.5, "exact_match": 0.25}


def test_appended_lines_and_saved_files_load_alike(history, tmp_path):
    appended, saved = tmp_path / "appended.jsonl", tmp_path / "saved.jsonl"
    again = History()
    events = [evaluated(0), *[step(number) for number in range(1, 7)], evaluated(3), evaluated(6)]
    appended.write_text("".join(f"{again.add(event)}\n" for event in events))
    history.save(saved)
    for path in (appended, saved):
        loaded = History.load(path)
        assert loaded.points() == history.points()
        assert loaded.evaluations() == history.evaluations()


def test_a_missing_file_is_an_empty_history(tmp_path):
    loaded = History.load(tmp_path / "metrics.jsonl")
    assert loaded.points()["step"] == loaded.evaluations()["step"] == []


def test_a_truncated_last_line_is_skipped(history, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {n}, "loss": 1, "learning_rate": 1, "gradient_norm": 1}}\n' for n in (1, 2)))
    whole = path.read_text()
    for cut in range(2, 60):
        path.write_text(whole[:-cut])
        assert History.load(path).points()["step"] == [1]


def test_a_line_with_a_byte_that_is_not_utf8_is_skipped_and_counted(history, tmp_path):
    history.save(tmp_path / "metrics.jsonl")
    content = bytearray((tmp_path / "metrics.jsonl").read_bytes())
    content[5] ^= 0x80
    (tmp_path / "metrics.jsonl").write_bytes(content)
    damaged = History.load(tmp_path / "metrics.jsonl")
    assert damaged.num_rows == history.num_rows - 1
    assert damaged.damage == "metrics.jsonl is damaged: 1 of its lines were skipped"


def test_the_free_running_loss_is_a_column_only_where_it_was_measured(history, tmp_path):
    assert FREE_RUNNING_LOSS not in history.evaluations()
    measured = Evaluation(16, 0.5, 0.5, 0.25, free_running_loss=0.123456789)
    line = json.loads(history.add(EvaluationEvent(9, measured, is_best=True, train_loss=None)))
    assert line[FREE_RUNNING_LOSS] == 0.123457
    assert history.evaluations()[FREE_RUNNING_LOSS] == [None, None, None, 0.123457]
    assert history.chart("evaluations")["columns"][FREE_RUNNING_LOSS] == [None, None, None, 0.12346]
    assert FREE_RUNNING_LOSS not in history.chart("points")["columns"]
    history.save(tmp_path / "metrics.jsonl")
    assert "null" not in (tmp_path / "metrics.jsonl").read_text()
    loaded = History.load(tmp_path / "metrics.jsonl")
    assert loaded.evaluations() == history.evaluations()
    assert loaded.points() == history.points()


def test_bleu_and_chrf_are_columns_only_of_translations_and_files_without_them_still_open(history, tmp_path):
    path = tmp_path / "metrics.jsonl"
    history.save(path)
    assert "bleu" not in path.read_text()
    assert list(History.load(path).evaluations()) == list(EVALUATION_COLUMNS)
    resumed = History.load(path)  # a run that was begun before there was BLEU
    line = resumed.add(EvaluationEvent(9, Evaluation(16, 0.5, 0.5, 0.0, bleu=23.6, chrf=51.25), True, None))
    assert (json.loads(line)["bleu"], json.loads(line)["chrf"]) == (23.6, 51.25)
    resumed.save(path)
    for history in (resumed, History.load(path)):
        assert [history.evaluations()[name] for name in QUALITY_COLUMNS] == [[None] * 3 + [23.6], [None] * 3 + [51.25]]
        assert history.chart("evaluations")["columns"]["bleu"] == [None, None, None, 23.6]


def test_rewinding_deletes_later_rows(history):
    history.rewind(4, evaluated_step=3)
    assert history.points()["step"] == [1, 2, 3, 4]
    assert history.evaluations()["step"] == [0, 3]
    history.rewind(3, evaluated_step=0)  # paused between step 3 and its evaluation
    assert history.points()["step"] == [1, 2, 3]
    assert history.evaluations()["step"] == [0]
    history.rewind(0, evaluated_step=-1)
    assert history.points()["step"] == history.evaluations()["step"] == []


def test_files_of_other_orders_and_kinds_of_damage_load_in_step_order(tmp_path):
    path = tmp_path / "metrics.jsonl"
    row = '{{"step": {}, "loss": {}, "learning_rate": 1, "gradient_norm": 1}}\n'
    damaged = [
        "[]\n",
        "3\n",
        row.format(3, "null"),
        row.format(3, '"x"'),
        row.format("1e999", 1),
        "{}\n",
        "[" * 999 + "\n",
    ]
    path.write_text("".join([row.format(2, 5), *damaged, row.format(1, 4), row.format(2, 6)]))
    loaded = History.load(path)
    assert loaded.points() == {"step": [1, 2], "loss": [4, 6], "learning_rate": [1, 1], "gradient_norm": [1, 1]}
    assert loaded.evaluations()["step"] == []


def test_a_run_of_max_points_keeps_every_step_and_a_longer_one_no_more_rows():
    history = History()
    for number in range(1, 4 * MAX_POINTS):
        history.add(step(number))
        if number <= MAX_POINTS:
            assert history.num_rows == number
        assert history.num_rows <= MAX_POINTS + 5
    assert history.points()["step"][0] == 1
    assert history.points()["step"][-1] == 4 * MAX_POINTS - 1
    assert history.num_rows > MAX_POINTS / 4


def test_a_spike_of_a_long_run_is_kept():
    history, spikes = History(), {3_000: (9.0, 1.0), 20_001: (0.001, 1.0), 29_999: (0.5, 70.0)}
    for number in range(1, 30_001):
        loss, norm = spikes.get(number, (0.5 + number % 7 / 100, 1.0 + number % 5 / 100))
        history.add(StepEvent(number, loss, 0.001, norm, 1e4))
    assert set(spikes) <= set(history.points()["step"])
    assert set(spikes) <= set(history.chart("points")["columns"]["step"])


def test_averages_of_a_long_run_are_taken_of_evenly_spaced_steps():
    history = History()
    for number in range(1, 4 * MAX_POINTS):
        history.add(StepEvent(number, float(number % 2), 0.001, number % 3, 1e4))
    steps = history.evenly_spaced_points()["step"]
    assert len({late - early for early, late in itertools.pairwise(steps)}) == 1
    assert len(steps) > MAX_POINTS / 8
    few = History()
    for number in range(1, 100):
        few.add(step(number))
    assert few.evenly_spaced_points() == few.points()


def test_evaluations_are_all_kept():
    history = History()
    for number in range(0, 3 * MAX_POINTS, 2):
        history.add(evaluated(number))
    assert history.evaluations()["step"] == list(range(0, 3 * MAX_POINTS, 2))


def test_columns_read_during_writing_have_one_length():
    history, done = History(), threading.Event()

    def write() -> None:
        for number in range(1, 2_001):
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
    assert len(history.points()["step"]) == 2_000
