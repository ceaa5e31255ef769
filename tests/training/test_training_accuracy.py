"""Accuracy on training pairs beside that on validation pairs: memorizing and generalizing can be told apart."""

import json

import pytest

from core.__main__ import main
from core.evaluation.accuracy import evaluate
from core.reports.report.writing import write_report
from core.runs import RunFolder
from core.runs.run import Runs
from core.tasks import Task, fixed_pairs, training_sample
from core.teaching.bugs import new_state
from core.training import loop
from core.training.history import History
from core.training.loop import EvaluationEvent, StepEvent, train
from tests.support.command_output import last_json
from tests.support.trainings import train_run

MEMORIZED = {
    "training.training_sequences": 8,
    "training.steps": 60,
    "training.batch_size": 8,
    "training.learning_rate": 0.01,
    "training.evaluate_every": 30,
    "model.dropout": 0.0,
}


@pytest.fixture(scope="module")
def memorizing(tmp_path_factory, tiny) -> Runs:
    """A folder with a run that has seen the same eight pairs sixty times."""
    root = tmp_path_factory.mktemp("checkpoints")
    train_run(RunFolder.create(root, tiny.with_changes(MEMORIZED), name="memorizing"))
    return Runs(root)


def test_the_sample_is_of_the_pairs_that_the_run_trains_on(tiny):
    state = new_state(tiny.with_changes(MEMORIZED))
    evaluation = next(event for event in train(state) if isinstance(event, EvaluationEvent)).evaluation
    trained_on = fixed_pairs(state.task, 8, split="train")
    measured = evaluate(state.model, trained_on)
    assert evaluation.train_token_accuracy == measured.token_accuracy
    assert evaluation.train_exact_match == measured.exact_match


@pytest.mark.parametrize("sequences", [0, 200])
def test_it_is_as_large_as_the_validation_set_up_to_a_limit(tiny, sequences, monkeypatch):
    sizes: list[int] = []

    def sampled(task: Task, count: int, **options):
        sizes.append(len(sample := training_sample(task, count, **options)))
        return sample

    monkeypatch.setattr(loop, "training_sample", sampled)
    for validation in (16, 256):
        changes = {"training.training_sequences": sequences, "training.validation_sequences": validation}
        next(train(new_state(tiny.with_changes(changes))))
    assert sizes == [16, loop.TRAINING_SAMPLE]


def test_a_run_that_memorizes_is_told_from_one_that_generalizes(memorizing, capsys):
    run = memorizing["memorizing"]
    evaluations = run.history.evaluations()
    assert evaluations["train_exact_match"][-1] == 1
    assert evaluations["exact_match"][-1] < 0.2
    info = run.info
    assert (info.train_exact_match, info.train_token_accuracy) == (1, 1)
    assert info.validation.train_exact_match is not None
    assert main(["--checkpoints", str(run.folder.path.parent), "runs", "--json"]) == 0
    assert last_json(capsys.readouterr().out)["runs"][0]["train_exact_match"] == 1
    report = write_report(run, sequences=40)
    assert "| exact match on 8 training pairs, in padded batches | " in report.markdown
    best = run.trained()
    measured = evaluate(best.model, fixed_pairs(best.task, 8, split="train"))
    assert report.metrics["train_token_accuracy"] == measured.token_accuracy


def test_measuring_it_changes_no_bit_of_the_training(tiny, monkeypatch):
    def losses(size: int) -> list[float]:
        monkeypatch.setattr(loop, "TRAINING_SAMPLE", size)
        return [event.loss for event in train(new_state(tiny)) if isinstance(event, StepEvent)]

    assert losses(1) == losses(64)


def test_older_files_have_no_such_columns(memorizing, tmp_path):
    lines = [json.loads(line) for line in memorizing["memorizing"].folder.metrics.read_text().splitlines()]
    older = [{name: value for name, value in line.items() if not name.startswith("train_")} for line in lines]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in older))
    history = History.load(path)
    assert history.damage == ""
    assert not any(name.startswith("train_") for name in history.evaluations())
    assert not any(name.startswith("train_") for name in history.chart("evaluations")["columns"])
