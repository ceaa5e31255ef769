"""Metrics written for other programs: a CSV file and TensorBoard read back, and what Trackio and W&B are handed."""

import csv
import logging
import sys
import types
from typing import Any

import pytest

from core.runs import RunFolder
from core.runs.logs import LOGS, check_logs
from core.storage.errors import InputError, LabError
from core.storage.optional_imports import is_installed
from core.training.history import History
from tests.support.trainings import train_run

STEPS = 7  # with an evaluation every 3


@pytest.fixture
def train(root, tiny):
    """Train a run with logs, also from where it was stopped, and return its folder."""
    preset = tiny.with_changes({"training.steps": STEPS, "training.evaluate_every": 3})

    def run(*logs: str, stop_at: int | None = None) -> RunFolder:
        folder = RunFolder(root, "logged")
        if not folder.exists():
            RunFolder.create(root, preset, name="logged")
        train_run(folder, stop_after=stop_at, logs=logs)
        return folder

    return run


def rows(folder: RunFolder) -> list[dict[str, Any]]:
    with (folder.path / "log.csv").open(newline="") as file:
        return [{name: float(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def test_csv_has_a_row_for_every_step_with_the_figures_of_the_history(train):
    folder = train("csv")
    history = History.load(folder.metrics)
    found = rows(folder)
    assert [row["step"] for row in found] == list(range(STEPS + 1))
    assert [row["step"] for row in found if "validation/loss" in row] == [0, 3, 6, 7]
    losses = dict(zip(history.evaluations()["step"], history.evaluations()["validation_loss"], strict=True))
    assert {row["step"]: row["validation/loss"] for row in found if "validation/loss" in row} == pytest.approx(
        losses, rel=1e-5
    )
    assert all("train/learning_rate" in row for row in found[1:])


def test_csv_of_a_resumed_run_has_every_step_once(train):
    train("csv", stop_at=3)  # before the evaluation of that step
    folder = train("csv")
    found = rows(folder)
    assert [row["step"] for row in found] == list(range(STEPS + 1))
    assert [row["step"] for row in found if "validation/loss" in row] == [0, 3, 6, 7]
    assert found[3].keys() >= {"train/loss", "validation/loss"}


def test_csv_forgets_steps_that_were_not_saved(train):
    folder = train("csv", stop_at=4)
    with (folder.path / "log.csv").open("a") as file:
        file.write("5,9.0\n6,9.0\n7,9.")
    assert [row["step"] for row in rows(train("csv"))] == list(range(STEPS + 1))
    assert 9.0 not in [row.get("train/loss") for row in rows(folder)]


@pytest.mark.skipif(not is_installed("tensorboard"), reason="needs tensorboard")
def test_tensorboard_reads_the_same_figures(train):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    folder = train("tensorboard", "csv", stop_at=4)
    with SummaryWriter(str(folder.path / "tensorboard")) as lost:  # of a step that was not saved
        lost.add_scalar("train/loss", 9.0, 6)
    folder = train("csv", "tensorboard")
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    found = rows(folder)
    for name in ("train/loss", "train/gradient_norm", "validation/loss", "validation/exact_match"):
        expected = {row["step"]: row[name] for row in found if name in row}
        assert {event.step: event.value for event in events.Scalars(name)} == pytest.approx(expected, rel=1e-6), name
        assert len(events.Scalars(name)) == len(expected), name


class Tracker:
    """Stands for the packages Trackio and wandb, and for a run of theirs."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.values: dict[int, dict[str, float]] = {}
        self.finished = False

    def init(self, *arguments: Any, **settings: Any) -> "Tracker":
        print("a banner")
        self.settings = dict(zip(("project",), arguments, strict=False)) | settings
        return self

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.values.setdefault(step, {}).update(values)

    def finish(self) -> None:
        self.finished = True

    def Settings(self, **settings: Any) -> dict[str, Any]:
        return settings


@pytest.fixture(params=["trackio", "wandb"])
def tracker(request, monkeypatch) -> tuple[str, Tracker]:
    tracker = Tracker()
    module: Any = types.ModuleType(request.param)
    module.init, module.finish, module.Settings = tracker.init, tracker.finish, tracker.Settings
    monkeypatch.setitem(sys.modules, request.param, module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return request.param, tracker


def test_trackers_are_handed_the_same_values_and_the_preset(train, tracker, capsys):
    name, found = tracker
    folder = train(name, "csv")
    assert (found.settings["project"], found.settings["name"], found.finished) == ("attention-lab", "logged", True)
    assert found.settings["config"]["training.steps"] == STEPS
    assert {step: values["train/loss"] for step, values in found.values.items() if step} == pytest.approx(
        {int(row["step"]): row["train/loss"] for row in rows(folder)[1:]}
    )
    if name == "trackio":
        assert capsys.readouterr().out == ""
    if name == "wandb":
        assert (found.settings["mode"], found.settings["dir"]) == ("offline", str(folder.path))


def test_a_tracker_that_fails_ends_itself_and_not_the_training(train, tracker, caplog, monkeypatch):
    name, found = tracker

    def fail(*arguments: Any, **settings: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(found, "log", fail)
    with caplog.at_level(logging.WARNING):
        folder = train(name, "csv")
    assert folder.read_info().status == "finished"
    assert [record.message for record in caplog.records if "no network" in record.message] == [
        f"logged: --log={name}: ConnectionError: no network; it is not written any more"
    ]
    assert len(rows(folder)) == STEPS + 1


def test_a_tracker_that_cannot_be_opened_fails_the_run_with_the_reason(train, tracker, monkeypatch, root):
    name, _ = tracker

    def refuse(*arguments: Any, **settings: Any) -> None:
        raise PermissionError("no key")

    monkeypatch.setattr(sys.modules[name], "init", refuse)
    with pytest.raises(LabError, match=f"--log={name} cannot be opened: no key"):
        train(name)
    assert RunFolder(root, "logged").read_info().status == "failed"


def test_names_are_checked_before_anything_trains(monkeypatch):
    assert check_logs(["csv", "csv"]) == ("csv",)
    with pytest.raises(InputError, match="--log=mlflow is not known; there are csv, tensorboard, trackio, wandb"):
        check_logs(["csv", "mlflow"])
    monkeypatch.setattr("core.runs.logs.is_installed", lambda package: False)
    for name in set(LOGS) - {"csv"}:
        with pytest.raises(InputError, match=f"--log={name} needs the package {name}: pip install {name}"):
            check_logs([name])
