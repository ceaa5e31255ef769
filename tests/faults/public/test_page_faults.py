"""Faults under the served page: the user reads the cause and the remedy, and everything else keeps working."""

import errno
import json
import math
from collections.abc import Callable, Iterator

import pytest
import torch

import core.runs.training
import core.storage.atomic
import core.training.loop
from core.runs import RunFolder
from tests.faults.public.conftest import Public, delete_folder
from tests.faults.public.session import Session
from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for

BAD = 13  # the seed of the run in which faults are injected
LONG = {"training.steps": 20_000, "training.evaluate_every": 20, "training.validation_sequences": 16}
DECODE = (SHIPPED, "4829", {}, "", "", "", "zero")


@pytest.fixture
def visitor(visit: Callable[[], Session]) -> Session:
    return visit()


@pytest.fixture(autouse=True)
def other_visitors(public: Public, visit: Callable[[], Session]) -> Iterator[None]:
    """Check that another visitor's run keeps training and that decoding works afterwards."""
    other = visit()
    run = other.call("train", "tiny", LONG | {"training.seed": 1}, "")["data"][0]["run"]
    wait_for(lambda: step_of(other, run) > 0)
    yield
    before = step_of(other, run)
    wait_for(lambda: step_of(other, run) > before)
    assert other.call("decode", *DECODE)["data"][0]["output"] == list("9284")
    other.call("stop", run)
    for live in public.runs.active():
        live.stop.set()
    wait_for(lambda: not public.runs.active())


def progress(session: Session, run: str) -> dict:
    """Return the state of a run as the charts receive it."""
    return session.call("progress", run, -1)["data"][0]


def step_of(session: Session, run: str) -> int:
    return progress(session, run)["step"]


def started(session: Session) -> str:
    run = session.call("train", "tiny", LONG | {"training.seed": BAD}, "")["data"][0]["run"]
    wait_for(lambda: step_of(session, run) > 5)
    return run


def wait_for_message(session: Session, run: str, *parts: str) -> dict:
    """Wait until the run's message contains all parts; saving is tried every few seconds."""
    wait_for(lambda: all(part in progress(session, run)["message"] for part in parts), seconds=120)
    return progress(session, run)


def raising(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the training of the run with seed BAD raise an exception after 40 events."""
    genuine = core.runs.training.train

    def train(state):
        for count, event in enumerate(genuine(state)):
            if state.preset.training.seed == BAD and count > 40:
                raise error
            yield event

    monkeypatch.setattr(core.runs.training, "train", train)


@pytest.mark.parametrize(
    ("error", "cause", "remedy"),
    [
        (MemoryError(), "out of memory", "Use a smaller model"),
        (RuntimeError("[enforce fail] can't allocate memory"), "out of memory", "smaller training.batch_size"),
        (ZeroDivisionError("division by zero"), "This is a bug", "the run can be resumed from there"),
    ],
    ids=["no memory", "no memory for a tensor", "an exception"],
)
def test_a_failed_training_reports_the_cause_and_can_be_resumed(visitor, monkeypatch, error, cause, remedy):
    raising(error, monkeypatch)
    run = visitor.call("train", "tiny", LONG | {"training.seed": BAD}, "")["data"][0]["run"]
    assert wait_for_message(visitor, run, cause, remedy)["status"] == "failed"
    monkeypatch.undo()
    assert visitor.call("resume", run)["event"] == "complete"
    wait_for(lambda: progress(visitor, run)["status"] == "training" and step_of(visitor, run) > 0)


def test_a_nan_loss_ends_the_run_with_a_message(visitor, public, monkeypatch):
    run = started(visitor)
    live = next(each for each in public.runs.active() if each.folder.name == run)
    genuine = torch.nn.functional.cross_entropy

    def poisoned(*arguments, **named):
        loss = genuine(*arguments, **named)
        return loss * math.nan if torch.is_grad_enabled() and _trains(live) else loss

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", poisoned)
    message = wait_for_message(visitor, run, "loss=nan", "Resume continues from the last save")
    assert message["status"] == "failed"


def _trains(live) -> bool:
    import threading

    return threading.current_thread().name == f"train {live.folder.name}"


def test_a_full_disk_is_reported_while_training_continues(visitor, public, monkeypatch):
    run = started(visitor)
    genuine = core.storage.atomic.write_atomically

    def full(path, *data, **named):
        if run in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return genuine(path, *data, **named)

    for module in ("core.storage.atomic", "core.runs.folder", "core.storage.tensor_file"):
        monkeypatch.setattr(f"{module}.write_atomically", full)
    message = wait_for_message(visitor, run, "could not be saved", "the disk is full", "Delete runs")
    assert message["status"] == "training"
    monkeypatch.undo()
    wait_for(lambda: progress(visitor, run)["message"] == "")


def test_a_deleted_folder_is_reported(visitor, public):
    run = started(visitor)
    delete_folder(RunFolder(public.runs.root, run).path)
    wait_for_message(visitor, run, "could not be saved", "was deleted while it was in use. Train the run again")
    visitor.call("stop", run)
    wait_for(lambda: progress(visitor, run)["status"] == "failed")
    assert "was deleted while it was in use. Train the run again" in progress(visitor, run)["message"]


def test_a_deleted_preset_is_restored_from_the_weights(visitor, public):
    run = visitor.call("train", "tiny", {"training.steps": 3, "training.warmup_steps": 0}, "")["data"][0]["run"]
    wait_for(lambda: progress(visitor, run)["status"] == "finished" and not owned(public, run))
    (RunFolder(public.runs.root, run).path / "preset.yaml").unlink()
    assert visitor.call("decode", run, *DECODE[1:])["event"] == "complete"
    assert "preset.yaml was deleted and has been restored" in progress(visitor, run)["message"]
    assert RunFolder(public.runs.root, run).has_preset()


def test_a_run_without_preset_and_weights_leaves_the_list(visitor, public):
    run = visitor.call("train", "tiny", {"training.steps": 3, "training.warmup_steps": 0}, "")["data"][0]["run"]
    wait_for(lambda: progress(visitor, run)["status"] == "finished" and not owned(public, run))
    for name in ("preset.yaml", "best.safetensors", "best.previous.safetensors"):
        (RunFolder(public.runs.root, run).path / name).unlink(missing_ok=True)
    assert "preset.yaml is missing and cannot be restored" in json.dumps(visitor.call("decode", run, *DECODE[1:]))
    wait_for(lambda: run not in [each["id"] for each in visitor.call("list_runs")["data"][0]["runs"]])


def owned(public: Public, run: str) -> bool:
    return any(live.folder.name == run for live in public.runs.active())


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ZeroDivisionError("/secret/path"), "Internal error. It was logged"),
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
    ],
    ids=["an exception", "no memory", "a full disk"],
)
def test_a_fault_in_a_handler_is_reported_and_logged(visitor, monkeypatch, caplog, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("core.interpret.trained.inspect", fail)
    answer = visitor.call("decode", *DECODE)
    assert answer["event"] == "error"
    assert message in answer["data"]["error"]
    assert "/secret/path" not in json.dumps(answer)
    assert "handler failed" in caplog.text
    monkeypatch.undo()
    assert visitor.call("decode", *DECODE)["event"] == "complete"


def test_starting_a_run_on_a_full_disk_is_refused(visitor, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("core.runs.folder.write_atomically", full)
    assert "the disk is full" in json.dumps(visitor.call("train", "tiny", {}, ""))
