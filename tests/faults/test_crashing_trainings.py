"""A training that crashes, is killed or runs out of memory ends alone: page, other runs and its own saves are whole."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from core.config import Preset
from core.generation import generate
from core.runs import RunError, RunFolder
from core.runs.training_state import load_state
from core.server import Runs, workers
from core.server import training_process as processes
from core.server.limits import Limits
from core.server.live import MADE_WAY
from core.server.training_child import NICENESS
from core.server.training_process import LOWEST_PRIORITY
from core.tasks import fixed_pairs
from tests.faults.fingerprints import fingerprint
from tests.support import training_crashes
from tests.support.run_helpers import LONG_TRAINING, wait_for, wait_for_status
from tests.support.trainings import train_run

pytestmark = pytest.mark.skipif(not processes.IS_SUPPORTED, reason="trainings have processes on Linux only")
DIES = "the one that dies"
SECONDS_TO_REPORT = 5.0


@pytest.fixture(scope="module")
def preset(tiny: Preset) -> Preset:
    """Trains with dropout, evaluated each 20 steps."""
    return tiny.with_changes({"model.dropout": 0.2, "training.steps": 60, "training.evaluate_every": 20})


@pytest.fixture(scope="module")
def expected(preset: Preset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The fingerprint of a run of ``preset`` that trains alone, in this process."""
    return trained_alone(tmp_path_factory.mktemp("alone"), preset)


@pytest.fixture
def isolated(root: Path) -> Iterator[Callable[..., Runs]]:
    """Return a function that creates ``Runs`` whose runs train in processes; all are closed after the test."""
    opened: list[Runs] = []

    def create(prepare: Callable[[], None] = processes.nothing_to_prepare, *, max_runs: int = 3) -> Runs:
        opened.append(Runs(root, limits=Limits(max_runs=max_runs), in_processes=True, prepare_process=prepare))
        return opened[-1]

    yield create
    for runs in opened:
        runs.close()


@pytest.fixture
def started(monkeypatch) -> list[processes.TrainingProcess]:
    """The processes that were started, in this order."""
    every: list[processes.TrainingProcess] = []
    genuine = processes.TrainingProcesses.start

    def start(*arguments, **options):
        every.append(genuine(*arguments, **options))
        return every[-1]

    monkeypatch.setattr(processes.TrainingProcesses, "start", start)
    return every


def trained_alone(root: Path, preset: Preset) -> dict[str, str]:
    """The fingerprint of the same training in this process."""
    folder = RunFolder.create(root, preset, name="alone")
    train_run(folder)
    return fingerprint(folder)


def has_ended(runs: Runs, name: str) -> bool:
    return all(live.folder.name != name for live in runs.active())


def is_running(pid: int) -> bool:
    """Whether a process lives and has not ended yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_trains_what_a_thread_trains(isolated, root, preset, expected):
    runs = isolated()
    runs.start(preset, name="a")
    (live,) = runs.active()
    wait_for(lambda: runs["a"].has_weights)
    loaded = runs["a"].trained()
    assert generate(loaded.model, fixed_pairs(loaded.task, 2, split="test").src, max_steps=4) is not None
    assert wait_for_status(runs, "a", "finished", "failed").message == ""
    wait_for(lambda: has_ended(runs, "a"))
    assert fingerprint(RunFolder(root, "a")) == expected
    on_disk = runs["a"].history
    assert live.history.points() == on_disk.points()
    assert live.history.evaluations() == on_disk.evaluations()
    assert live.replay.snapshots() == runs["a"].replay.snapshots()
    assert live.weights_by_step.steps == runs["a"].weights_by_step.steps == (0, 40, 60)
    assert all(
        torch.equal(tensor, runs["a"].weights_by_step.at(40)[name])
        for name, tensor in live.weights_by_step.at(40).items()
    )


def test_a_run_that_is_stopped_and_resumed_in_processes_equals_one_that_never_stopped(isolated, root, preset):
    longer = preset.with_changes({"training.steps": 120})
    expected, runs = trained_alone(root, longer), isolated()
    runs.start(longer, name="a")
    for at_least in (10, 60):
        wait_for(lambda at_least=at_least: runs["a"].info.step >= at_least)
        assert runs["a"].progress.queue_position is None
        asked = time.monotonic()
        runs.stop("a")
        assert runs["a"].info.status in ("stopping", "stopped")
        assert wait_for_status(runs, "a", "stopped", "finished").status == "stopped"
        assert time.monotonic() - asked < SECONDS_TO_REPORT
        wait_for(lambda: has_ended(runs, "a"))
        runs.resume("a")
    assert wait_for_status(runs, "a", "finished", "failed").step == 120
    assert fingerprint(RunFolder(root, "a")) == expected


def test_a_long_run_makes_way_for_one_of_somebody_else(isolated, root, tiny, preset, started, monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_IN_FRONT", 0.3)
    runs, long = isolated(max_runs=1), tiny.with_changes(LONG_TRAINING)
    runs.start(long, name="long", owner="a")
    wait_for(lambda: runs["long"].info.step > 0)
    runs.start(preset, name="own", owner="a")
    time.sleep(0.6)
    assert runs["own"].info.status == "queued"  # nobody else waits
    runs.start(long, name="other", owner="b")
    wait_for(lambda: runs["other"].info.step > 0)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert [os.getpriority(os.PRIO_PROCESS, each.pid) for each in started] == [LOWEST_PRIORITY, own + NICENESS]
    wait_for(lambda: runs["long"].info.message == MADE_WAY)
    step = runs["long"].info.step
    wait_for(lambda: runs["long"].info.step > step)  # it goes on
    runs.start(long, name="third", owner="c")
    time.sleep(0.6)
    assert runs["third"].info.status == "queued"  # as many runs have made way as train in front
    assert runs["other"].info.message == ""
    runs.stop("long")
    wait_for(lambda: runs["third"].info.step > 0)  # now "other" makes way


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("crash", "message"),
    [
        (None, "the training process was killed (signal 9), probably because memory ran out"),
        (training_crashes.segfault, "the training process crashed (signal 11, SIGSEGV)"),
        pytest.param(
            training_crashes.exit_early,
            "the training process ended early, with exit code 7",
            marks=pytest.mark.slow,  # as the crash, but for the message
        ),
        (training_crashes.run_out_of_memory, "out of memory"),
    ],
    ids=["killed", "segfault", "exit", "memory limit"],
)
def test_a_training_that_crashes_ends_alone_and_can_be_resumed(
    isolated, started, root, preset, expected, crash, message
):
    doomed = preset.with_changes({"training.steps": 60 if crash else 5_000}).model_copy(update={"description": DIES})
    runs = isolated(partial(crash, 20, DIES) if crash else processes.nothing_to_prepare)
    runs.start(doomed, name="a")
    wait_for(lambda: runs["a"].info.step >= 20 or runs["a"].info.status == "failed")
    runs.start(preset, name="neighbour")
    if crash is None:
        killed(started[0].pid)
    died = time.monotonic()
    info = wait_for_status(runs, "a", "failed")
    assert time.monotonic() - died < SECONDS_TO_REPORT
    assert info.message.startswith(message)
    assert "data saved before is kept" in info.message
    assert "smaller training.batch_size" in info.message
    assert wait_for_status(runs, "neighbour", "finished", "failed").status == "finished"
    assert fingerprint(RunFolder(root, "neighbour")) == expected
    wait_for(lambda: has_ended(runs, "a"))
    if crash is not None:
        assert load_state(RunFolder(root, "a").last, doomed).step == 20
        again = isolated()
        again.resume("a")
        assert wait_for_status(again, "a", "finished", "failed").message == ""
        resumed = fingerprint(RunFolder(root, "a"))
        assert {part for part in expected if resumed[part] != expected[part]} <= {"facts", "best"}  # its description


def test_a_process_leaves_when_the_server_is_gone(isolated, started, root, preset):
    runs = isolated()
    runs.start(preset.with_changes(LONG_TRAINING), name="a")
    wait_for(lambda: runs["a"].info.step >= 20)
    (process,) = started
    process._messages.close()  # as the end of the server's process does
    wait_for(lambda: not is_running(process.pid), seconds=SECONDS_TO_REPORT)


def test_closing_ends_processes_that_do_not_stop(isolated, started, root, preset):
    runs = isolated(partial(training_crashes.hang, 20, DIES))
    runs.start(preset.model_copy(update={"description": DIES}), name="a")
    wait_for(lambda: runs["a"].history.evaluations()["step"][-1:] == [20])  # after which it hangs
    runs.close(seconds=0.5)
    wait_for(lambda: not is_running(started[0].pid), seconds=SECONDS_TO_REPORT)
    wait_for(lambda: has_ended(runs, "a"))
    assert RunFolder(root, "a").read_info().status == "interrupted"


def test_the_page_answers_before_a_process_trains(isolated, started, preset):
    runs = isolated()
    runs.start(preset.with_changes(LONG_TRAINING), name="a")
    wait_for(lambda: runs["a"].info.step >= 20)
    assert os.getpriority(os.PRIO_PROCESS, started[0].pid) == os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
    with runs.inference_priority.inference():  # a class always has a request; training must not wait for its end
        before = runs["a"].info.step
        wait_for(lambda: runs["a"].info.step > before + 20)


def log_and_fail() -> None:
    logging.getLogger("core.test").warning("from %s", "another process")
    raise RunError("this cannot be prepared")


def test_what_a_process_logs_and_raises_reaches_the_page(isolated, preset, caplog):
    caplog.set_level("WARNING")
    runs = isolated(log_and_fail)
    runs.start(preset, name="a")
    assert wait_for_status(runs, "a", "failed").message == "this cannot be prepared"
    wait_for(lambda: has_ended(runs, "a"))
    assert ("core.test", logging.WARNING, "from another process") in caplog.record_tuples
    assert "in log_and_fail" in caplog.text  # where it was raised


@pytest.mark.slow
def test_no_process_outlives_a_killed_server(root, preset):
    RunFolder.create(root, preset.with_changes(LONG_TRAINING), name="a", status="stopped")
    program = (
        "import sys, time; from pathlib import Path; from core.server import Runs\n"
        "runs = Runs(Path(sys.argv[1]), in_processes=True); runs.resume('a')\n"
        "while runs['a'].info.step < 20: time.sleep(0.01)\n"
        "print('training', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"training\n"
        folder = RunFolder(root, "a")
        wait_for(folder.last.exists)
        server.kill()
    wait_for(lambda: folder.read_info().status == "interrupted", seconds=SECONDS_TO_REPORT)
    size = folder.metrics.stat().st_size
    time.sleep(1.0)
    assert folder.metrics.stat().st_size == size
    assert load_state(folder.last, folder.read_preset()).step >= 0
