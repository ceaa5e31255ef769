"""The context of a training: what entering, iterating and leaving it does to the run."""

import contextlib
import signal
from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from filelock import FileLock

from core.runs import RunError, RunFolder
from core.runs.recorder import Recorder
from core.runs.training import training
from core.runs.training_state import load_state, resume_state
from core.storage.tensor_file import CheckpointError
from core.training import loop
from core.training.loop import EndEvent, EvaluationEvent, StepEvent
from tests.support.trainings import assert_ends_alike, train_run

EVENTS = 12  # of 8 steps, evaluations after 0, 4 and 8 of them, and the end


def contents(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.name != ".lock"}


@pytest.fixture
def locks(monkeypatch) -> list[FileLock]:
    """All locks of folders that were acquired; a lock that nobody holds on to would release itself."""
    acquired: list[FileLock] = []
    acquire = RunFolder.lock

    def lock(folder: RunFolder) -> FileLock:
        acquired.append(acquire(folder))
        return acquired[-1]

    monkeypatch.setattr(RunFolder, "lock", lock)
    return acquired


# --- leaving -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [0, 6])
def test_a_run_left_once_equals_one_that_never_stopped_when_it_is_resumed(folder, straight, events):
    with training(folder) as run:
        list(islice(run, events))
    assert train_run(folder).status == "finished"
    assert_ends_alike(folder, straight)


def test_a_run_left_after_every_event_equals_one_that_never_stopped(folder, straight):
    is_complete = False
    for _ in range(EVENTS):
        with training(folder) as run:
            event = next(run)
        is_complete |= isinstance(event, EvaluationEvent) and event.step == 8
        status = "finished" if is_complete else "stopped"
        assert (run.info.status, run.info.step, run.info.message) == (status, event.step, "")
        assert run.info == folder.read_info()
        assert load_state(folder.last, folder.read_preset()).step == event.step
    assert is_complete
    assert_ends_alike(folder, straight)


def test_the_reason_for_leaving_is_in_the_message_after_what_was_noticed_before(folder):
    train_run(folder, stop_after=2)
    train_run(folder, stop_after=4)
    data = bytearray(folder.last.read_bytes())
    data[len(data) // 2] ^= 1
    folder.last.write_bytes(data)
    with training(folder) as run:
        assert run.state.step == 2
        next(run)
        run.reason = "enough"
    notice = run.state.notice
    assert notice.startswith("last.safetensors is damaged")
    assert (folder.read_info().status, folder.read_info().message) == ("stopped", f"{notice}; enough")


def test_a_run_is_saved_when_the_generator_that_trains_it_is_closed(folder, straight):
    def losses() -> Iterator[float]:
        with training(folder) as run:
            yield from (event.loss for event in run if isinstance(event, StepEvent))

    generator = losses()
    assert list(islice(generator, 3))
    generator.close()
    assert (folder.read_info().status, folder.read_info().step) == ("stopped", 3)
    train_run(folder)
    assert_ends_alike(folder, straight)


@pytest.mark.parametrize("at", [0, 3, 8])
def test_an_exception_of_the_block_marks_the_run_failed_and_keeps_what_was_saved_last(folder, straight, at):
    train_run(folder, stop_after=1)
    saved = folder.last.read_bytes()

    def explode(event) -> None:
        if event.step >= at:
            raise ZeroDivisionError("of the caller")

    with pytest.raises(ZeroDivisionError):
        train_run(folder, on_event=explode)
    assert (folder.read_info().status, folder.read_info().message) == ("failed", "ZeroDivisionError: of the caller")
    assert folder.last.read_bytes() == saved
    assert train_run(folder).status == "finished"
    assert_ends_alike(folder, straight)


def test_an_exception_of_the_training_marks_the_run_failed_also_if_the_block_suppresses_it(folder, monkeypatch):
    train_run(folder, stop_after=1)
    saved = folder.last.read_bytes()
    with training(folder) as run:
        next(run)
        with monkeypatch.context() as broken:
            broken.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                next(run)
        assert list(run) == []
    assert (folder.read_info().status, folder.read_info().message) == ("failed", "ZeroDivisionError: division by zero")
    assert folder.last.read_bytes() == saved  # the update was left halfway


def test_a_diverged_run_that_is_left_at_its_end_has_failed(folder, monkeypatch):
    monkeypatch.setattr("core.training.loop.clip_gradients", lambda parameters, max_norm: float("nan"))
    with training(folder) as run:
        end = next(event for event in run if isinstance(event, EndEvent))
    assert (end.reason, run.info.status, run.info.message) == ("diverged", "failed", end.message)


@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt])
def test_the_lock_is_released_however_the_run_is_left(folder, locks, error):
    with contextlib.suppress(error or Exception), training(folder) as run:
        next(run)
        assert [lock.is_locked for lock in locks] == [True]
        if error:
            raise error
    assert [lock.is_locked for lock in locks] == [False]


def press_ctrl_c(*, times: int = 1) -> None:
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("where", ["the update", "the block"])
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_the_update_and_saves_the_run(folder, straight, where, monkeypatch):
    steps = []
    clip = loop.clip_gradients

    def press_at_three(event) -> None:
        steps.append(event.step)
        if event.step == 3 and where == "the block":
            press_ctrl_c()
        if event.step == 3:
            monkeypatch.setattr(loop, "clip_gradients", lambda *given: [press_ctrl_c(), clip(*given)][1])

    with pytest.raises(KeyboardInterrupt) as pressed:
        train_run(folder, on_event=press_at_three)
    monkeypatch.undo()
    info = folder.read_info()
    assert pressed.value.__notes__ == [f"run={folder.name!r} is saved after step {info.step}; training() resumes it"]
    assert (info.status, info.message, steps[-1]) == ("stopped", "interrupted by Ctrl+C", 3)
    assert info.step == (4 if where == "the update" else 3)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    train_run(folder)
    assert_ends_alike(folder, straight)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_second_ctrl_c_while_the_run_is_saved_waits_for_that(folder, straight, monkeypatch):
    save = Recorder.stop
    monkeypatch.setattr(Recorder, "stop", lambda *given: [press_ctrl_c(), save(*given)][1])
    with pytest.raises(KeyboardInterrupt):
        train_run(folder, on_event=lambda event: press_ctrl_c() if event.step == 3 else None)
    monkeypatch.undo()
    assert (folder.read_info().status, folder.read_info().step) == ("stopped", 3)
    train_run(folder)
    assert_ends_alike(folder, straight)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_second_ctrl_c_leaves_the_run_interrupted_with_what_was_saved_last(folder, straight, monkeypatch):
    train_run(folder, stop_after=1)
    saved = folder.last.read_bytes()
    with monkeypatch.context() as pressed:
        pressed.setattr(loop, "clip_gradients", lambda *_: press_ctrl_c(times=2))
        with pytest.raises(KeyboardInterrupt) as raised, training(folder) as run:
            list(run)
    note = f"run={folder.name!r} is interrupted; training() resumes it from its last save"
    assert raised.value.__notes__ == [note]
    assert (folder.read_info().status, folder.read_info().message) == ("interrupted", "interrupted by Ctrl+C")
    assert folder.last.read_bytes() == saved
    train_run(folder)
    assert_ends_alike(folder, straight)


# --- iterating ---------------------------------------------------------------------------------------------------


def test_a_second_loop_continues_the_first_and_after_the_end_there_is_nothing(folder, straight):
    with training(folder) as run:
        first = [event.step for event in islice(run, 4)]
        assert run.state.step == 3
        *_, end = run
        assert first == [0, 1, 2, 3]
        assert end == EndEvent(8, "finished")
        assert list(run) == []
        assert folder.read_info().status == "finished"
        before = contents(folder)
    assert contents(folder) == before
    assert_ends_alike(folder, straight)


@pytest.mark.parametrize("events", [0, 4, EVENTS])
def test_nothing_is_trained_after_the_context_was_left(folder, events):
    with training(folder) as run:
        list(islice(run, events))
    before = contents(folder)
    with pytest.raises(RuntimeError, match="run='a': the context of this training was left"):
        next(run)
    assert contents(folder) == before


def test_a_run_that_is_entered_and_not_trained_stays_what_it_was(folder, straight):
    with training(folder):
        assert folder.read_info().status == "training"
    assert (folder.read_info().status, folder.read_info().step) == ("stopped", 0)
    train_run(folder)
    with training(folder) as run:
        pass
    assert (run.info.status, run.info.step, run.info.message) == ("finished", 8, "")
    assert_ends_alike(folder, straight)


def test_events_are_yielded_with_gradients_on_and_the_model_in_training_mode(folder):
    with training(folder) as run:
        for _ in run:
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()
            assert run.state.model.training
    assert torch.is_grad_enabled()


# --- entering ----------------------------------------------------------------------------------------------------


def test_a_run_that_is_in_use_is_left_alone(folder):
    before = contents(folder)
    lock = folder.lock()
    with pytest.raises(RunError, match="run='a' is in use"), training(folder):
        pass
    assert contents(folder) == before
    with training(folder, is_locked=True) as run:
        next(run)
    assert folder.read_info().status == "stopped"
    assert lock.is_locked
    lock.release()
    with training(folder), pytest.raises(RunError, match="is in use"):
        folder.lock()


def test_a_run_whose_state_cannot_be_restored_is_left_alone(folder, locks):
    train_run(folder, stop_after=2)
    folder.last.write_bytes(b"damaged")
    before = contents(folder)
    longer = folder.read_preset().with_changes({"training.steps": 12})
    with pytest.raises(CheckpointError), training(folder, preset=longer):
        pass
    assert contents(folder) == before
    assert not any(lock.is_locked for lock in locks)


def test_a_run_resumes_with_its_own_threads_and_leaves_those_of_the_caller(folder, straight):
    train_run(folder, stop_after=3)
    torch.set_num_threads(2)
    with training(folder) as run:
        threads = {torch.get_num_threads() for _ in run}
    assert (threads, torch.get_num_threads()) == ({1}, 2)
    assert [session.threads for session in folder.read_info().provenance] == [1, 1]
    assert_ends_alike(folder, straight)


def test_a_callers_own_state_is_trained_on_the_callers_threads_with_a_notice(folder):
    train_run(folder, stop_after=3)
    torch.set_num_threads(2)
    train_run(folder, resume_state(folder))
    assert folder.read_info().message == "started with 1 torch threads, now 2: not bit-exact"


def test_a_preset_with_more_steps_extends_a_run(folder, preset):
    train_run(folder)
    longer = preset.with_changes({"training.steps": 12})
    with training(folder, preset=longer) as run:
        next(run)
    assert folder.read_preset() == longer
    assert (run.info.status, run.info.step) == ("stopped", 9)
    assert train_run(folder).step == 12
