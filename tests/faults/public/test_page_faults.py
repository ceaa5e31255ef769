"""Faults under the served page: whoever asked reads what happened and what to do, and everything else goes on."""

import errno
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import core.runs.recorder
import core.storage.atomic
import core.training.loop
from core.runs import RunFolder
from tests.faults.public.conftest import Public
from tests.faults.public.session import Session
from tests.serving import SHIPPED

BAD = 13  # the seed of the run that something happens to
LONG = {"training.steps": 20_000, "training.evaluate_every": 20, "training.validation_sequences": 16}
DECODE = (SHIPPED, "4829", {}, "", "", "", "zero")


@pytest.fixture
def visitor(visit: Callable[[], Session]) -> Session:
    return visit()


@pytest.fixture(autouse=True)
def others_go_on(public: Public, visit: Callable[[], Session]) -> Iterator[None]:
    """Another visitor's run trains meanwhile, and another visitor decodes afterwards."""
    other = visit()
    run = other.call("train", "tiny", LONG | {"training.seed": 1})["data"][0]["run"]
    wait(lambda: step_of(other, run) > 0)
    yield
    before = step_of(other, run)
    wait(lambda: step_of(other, run) > before)
    assert other.call("decode", *DECODE)["data"][0]["output"] == list("9284")
    other.call("stop", run)
    for live in public.runs.active():
        live.stop.set()
    wait(lambda: not public.runs.active())


def wait(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def told(session: Session, run: str) -> dict:
    """What the charts are told of a run."""
    return session.call("progress", run, -1)["data"][0]


def step_of(session: Session, run: str) -> int:
    return told(session, run)["step"]


def started(session: Session) -> str:
    run = session.call("train", "tiny", LONG | {"training.seed": BAD})["data"][0]["run"]
    wait(lambda: step_of(session, run) > 5)
    return run


def seen_within(session: Session, run: str, *parts: str, seconds: float = 8.0) -> dict:
    """Wait for what the visitor is told to have some parts; saving is tried every few seconds."""
    wait(lambda: all(part in told(session, run)["message"] for part in parts), seconds=seconds)
    return told(session, run)


def raising(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the training of the bad run raise a while after its beginning."""
    genuine = core.runs.recorder.train

    def train(state):
        for count, event in enumerate(genuine(state)):
            if state.preset.training.seed == BAD and count > 40:
                raise error
            yield event

    monkeypatch.setattr(core.runs.recorder, "train", train)


@pytest.mark.parametrize(
    ("error", "cause", "cure"),
    [
        (MemoryError(), "out of memory", "Use a smaller model"),
        (RuntimeError("[enforce fail] can't allocate memory"), "out of memory", "smaller training.batch_size"),
        (ZeroDivisionError("division by zero"), "This is a bug", "the run can be resumed from there"),
    ],
    ids=["no memory", "no memory for a tensor", "an exception"],
)
def test_a_training_that_fails_says_why_and_can_be_resumed(visitor, monkeypatch, row, error, cause, cure):
    raising(error, monkeypatch)
    run = visitor.call("train", "tiny", LONG | {"training.seed": BAD})["data"][0]["run"]
    assert seen_within(visitor, run, cause, cure)["status"] == "failed"
    monkeypatch.undo()
    assert visitor.call("resume", run)["event"] == "complete"
    wait(lambda: told(visitor, run)["status"] == "training" and step_of(visitor, run) > 0)
    row("F1", f"{type(error).__name__} in a training", "1 run", "told with the cure, resumed, others went on")


def test_numbers_that_are_no_numbers_end_a_run_with_the_place_named(visitor, public, monkeypatch, row):
    run = started(visitor)
    live = next(each for each in public.runs.active() if each.folder.name == run)
    genuine = torch.nn.functional.cross_entropy

    def poisoned(*arguments, **named):
        loss = genuine(*arguments, **named)
        return loss * math.nan if torch.is_grad_enabled() and _trains(live) else loss

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", poisoned)
    said = seen_within(visitor, run, "nan", seconds=15)
    assert said["status"] == "failed"
    row("F1", "a loss that is NaN", "1 run", "told, others went on")


def _trains(live) -> bool:
    import threading

    return threading.current_thread().name == f"train {live.folder.name}"


def test_a_full_disk_is_told_while_the_run_goes_on(visitor, public, monkeypatch, row):
    run = started(visitor)
    genuine = core.storage.atomic.write_atomically

    def full(path, data, **named):
        if run in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return genuine(path, data, **named)

    for module in ("core.storage.atomic", "core.runs.folder", "core.storage.tensor_file"):
        monkeypatch.setattr(f"{module}.write_atomically", full)
    said = seen_within(visitor, run, "could not be saved", "the disk is full", "Delete runs", seconds=20)
    assert said["status"] == "training"
    monkeypatch.undo()
    wait(lambda: told(visitor, run)["message"] == "", seconds=20)
    row("F1", "the disk is full", "1 run", "told, went on, saved when there was room")


def test_a_deleted_folder_is_told(visitor, public, row):
    run = started(visitor)
    shutil.rmtree(RunFolder(public.runs.root, run).path)
    began = time.monotonic()
    seen_within(visitor, run, "could not be saved", "was deleted while it was in use. Train the run again", seconds=20)
    took = time.monotonic() - began
    visitor.call("stop", run)
    wait(lambda: told(visitor, run)["status"] == "failed")
    assert "was deleted while it was in use. Train the run again" in told(visitor, run)["message"]
    row("F1", "the run's folder is deleted", "1 run", f"told with the cure after {took:.1f} s, others went on")


def test_a_deleted_preset_is_written_again_as_the_weights_have_it(visitor, public, row):
    run = visitor.call("train", "tiny", {"training.steps": 3, "training.warmup_steps": 0})["data"][0]["run"]
    wait(lambda: told(visitor, run)["status"] == "finished" and not owned(public, run))
    (RunFolder(public.runs.root, run).path / "preset.yaml").unlink()
    assert visitor.call("decode", run, *DECODE[1:])["event"] == "complete"
    assert "preset.yaml was deleted and has been restored" in told(visitor, run)["message"]
    assert RunFolder(public.runs.root, run).has_preset()
    row("F1", "a run's preset is deleted", "1 run", "told, written again")


def test_a_run_without_preset_or_weights_is_gone_from_the_list_and_nothing_else(visitor, public, row):
    run = visitor.call("train", "tiny", {"training.steps": 3, "training.warmup_steps": 0})["data"][0]["run"]
    wait(lambda: told(visitor, run)["status"] == "finished" and not owned(public, run))
    for name in ("preset.yaml", "best.safetensors", "best.previous.safetensors"):
        (RunFolder(public.runs.root, run).path / name).unlink(missing_ok=True)
    assert "there is no such run" in json.dumps(visitor.call("decode", run, *DECODE[1:]))
    wait(lambda: run not in [each["id"] for each in visitor.call("list_runs")["data"][0]["runs"]])
    row("F1", "a run's preset and weights are deleted", "1 run", "told, the list goes on without it")


def owned(public: Public, run: str) -> bool:
    return any(live.folder.name == run for live in public.runs.active())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("/secret/path"), "Internal error. It was logged"),
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
    ],
    ids=["an exception", "no memory", "a full disk"],
)
def test_a_fault_in_a_handler_is_told_and_the_log_has_the_rest(visitor, monkeypatch, caplog, row, error, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("ui.api.inspect", fail)
    monkeypatch.setattr("ui.tabs.report.write_report", fail)
    answer = visitor.call("decode", *DECODE)
    assert answer["event"] == "error"
    assert said in answer["data"]["error"]
    assert "/secret/path" not in json.dumps(answer)
    assert "handler failed" in caplog.text
    monkeypatch.undo()
    assert visitor.call("decode", *DECODE)["event"] == "complete"
    row("F1", f"{type(error).__name__} in a tab's handler", "1 call", "told, noted, the next call is answered")


def test_a_full_disk_starts_no_run_and_says_so(visitor, monkeypatch, row):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("core.runs.folder.write_atomically", full)
    assert "the disk is full" in json.dumps(visitor.call("train", "tiny", {}))
    row("F1", "a run is started on a full disk", "1 call", "told")
