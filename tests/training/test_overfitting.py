"""Overfitting is said while it happens, in the numbers measured; and ``training.patience`` stops a run early."""

import re
from itertools import islice

import pytest

from core.__main__ import main
from core.config import ConfigError, preset_to_yaml
from core.evaluation.accuracy import Evaluation
from core.reports.report.writing import write_report
from core.runs import RunFolder
from core.runs.run import Runs
from core.storage.errors import InputError
from core.teaching.bugs import new_state
from core.training.history import History
from core.training.loop import EndEvent, EvaluationEvent, StepEvent, train
from tests.support.trainings import train_run

OVERFIT = {
    "training.training_sequences": 8,
    "training.batch_size": 8,
    "training.steps": 150,
    "training.warmup_steps": 1,
    "training.learning_rate": 0.01,
    "training.schedule": "constant",
    "training.evaluate_every": 10,
    "model.dropout": 0.0,
}
SENTENCE = re.compile(
    r"The validation loss rose from (\d+\.\d\d) to (\d+\.\d\d) since step (\d+) while the training loss fell from "
    r"(\d+\.\d+) to (\d+\.\d+): the best weights are those of step \3\."
)


def history_of(*losses: tuple[float, float | None], own: float | None = None) -> History:
    """A history with an evaluation every 100 steps: validation loss and mean training loss of each."""
    history = History()
    for number, (loss, train_loss) in enumerate(losses):
        evaluation = Evaluation(16, loss, 0.5, 0.0, own)
        history.add(EvaluationEvent(100 * number, evaluation, is_best=False, train_loss=train_loss))
    return history


RISING = ((3.0, None), (1.21, 1.02), (1.30, 0.9), (1.34, 0.7), (1.38, 0.61))


def test_the_sentence_is_made_of_the_measured_numbers(tmp_path):
    expected = (
        "The validation loss rose from 1.21 to 1.38 since step 100 while the training loss fell from 1.02 to 0.61: "
        "the best weights are those of step 100."
    )
    history = history_of(*RISING)
    assert history.overfitting(100) == expected
    history.save(tmp_path / "metrics.jsonl")
    assert History.load(tmp_path / "metrics.jsonl").overfitting(100) == expected
    assert "train_loss" not in history.chart("evaluations")["columns"]


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        (RISING[:4], 100),  # two evaluations only
        ((*RISING[:4], (1.38, 1.05)), 100),  # the training loss rises too
        ((*RISING[:4], (1.215, 0.61)), 100),  # the last one is as good as the best
        (((0.001, None), (0.0005, 0.5), (0.001, 0.1), (0.002, 0.01), (0.003, 0.001)), 100),  # a solved task
        (RISING, None),
    ],
)
def test_it_is_silent_otherwise(losses, best):
    assert history_of(*losses).overfitting(best) == ""


def test_a_run_that_never_gets_better_is_compared_with_its_first_training_loss():
    history = history_of((1.0, None), (1.2, 0.9), (1.3, 0.8), (1.5, 0.25))
    assert history.overfitting(0) == (
        "The validation loss rose from 1.00 to 1.50 since step 0 while the training loss fell from 0.90 to 0.25: "
        "the best weights are those of step 0."
    )


def test_the_loss_that_chooses_the_best_weights_is_named():
    assert history_of(*RISING, own=1.0).overfitting(100) == ""  # it stays the same
    history = history_of(*RISING[:1])
    for number, loss in enumerate((1.0, 1.2, 1.3, 1.4), start=1):
        evaluation = Evaluation(16, 1.0, 0.5, 0.0, loss)
        history.add(EvaluationEvent(100 * number, evaluation, is_best=False, train_loss=1 / number))
    assert history.overfitting(100).startswith("The free-running validation loss rose from 1.00 to 1.40 since step 100")


def test_the_command_line_and_the_report_say_it(tiny, root, tmp_path, capsys):
    preset = tmp_path / "overfits.yaml"
    preset.write_text(preset_to_yaml(tiny.with_changes(OVERFIT)))
    assert main(["--checkpoints", str(root), "train", "--preset", str(preset), "--run", "overfits"]) == 0
    printed = capsys.readouterr().out
    first, last = SENTENCE.finditer(printed)
    assert printed.index("step 150") > first.start()  # it is said while the run trains
    run = Runs(root)["overfits"]
    evaluations = run.history.evaluations()
    best = evaluations["step"].index(run.info.best_step)
    assert last.groups() == (
        f"{evaluations['validation_loss'][best]:.2f}",
        f"{evaluations['validation_loss'][-1]:.2f}",
        str(run.info.best_step),
        f"{evaluations['train_loss'][best]:.2f}",
        f"{evaluations['train_loss'][-1]:.2f}",
    )
    assert last.group() in write_report(run, sequences=20).markdown


# ---- early stopping


def test_patience_stops_a_run_after_that_many_evaluations_without_a_better_loss(tiny, root):
    folder = RunFolder.create(root, tiny.with_changes(OVERFIT | {"training.patience": 3}), name="early")
    info = train_run(folder)
    assert info.status == "finished"
    assert info.step == info.best_step + 30 < 150
    assert info.message == (
        f"stopped early at step {info.step}: no better validation loss in 3 evaluations after step {info.best_step}, "
        "whose weights are the best"
    )
    report = write_report(Runs(root)["early"], sequences=20)
    assert f"Training {info.message}; 150 steps were planned." in report.markdown
    assert "not finished" not in report.markdown


def test_a_run_with_patience_is_that_without_up_to_its_end_also_when_resumed(tiny, root):
    early = tiny.with_changes(OVERFIT | {"training.patience": 3})
    *events, end = train(new_state(early))
    assert isinstance(end, EndEvent)
    losses = [event.loss for event in events if isinstance(event, StepEvent)]
    patient = (event.loss for event in train(new_state(tiny.with_changes(OVERFIT))) if isinstance(event, StepEvent))
    assert losses == list(islice(patient, len(losses)))
    halves = RunFolder.create(root, early, name="halves")
    train_run(halves, stop_after=end.step - 5)
    assert train_run(halves).step == end.step
    assert train_run(halves).step == end.step  # it ends at once


def test_no_preset_stops_early_and_patience_is_a_number_of_evaluations(tiny):
    assert tiny.training.patience == 0
    with pytest.raises((ConfigError, InputError), match=r"training\.patience"):
        tiny.with_changes({"training.patience": -1})
