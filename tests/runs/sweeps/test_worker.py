"""The process of a run: it is an ordinary run, and ends by itself when the program that started it is gone."""

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from core.config.preset import LoadedPlugin
from core.runs import RunFolder
from core.runs.sweeps import processes
from core.runs.sweeps.processes import REPOSITORY, RunProcess, usable_cores
from core.runs.sweeps.worker import Request, main
from core.storage.tensor_file import read_tensors
from tests.support.trainings import train_run

LONG = {"training.steps": 100_000, "training.evaluate_every": 20}


def ended(messages: queue.SimpleQueue) -> list[dict]:
    contents = []
    while (content := messages.get(timeout=60).content) is not None:
        contents.append(content)
    return contents


def request_for(root, preset, **settings) -> Request:
    return Request(root=str(root), run="a", preset=preset.model_dump_json(), command="sweep s", **settings)


def test_a_process_trains_with_one_thread_what_train_would(root, tiny, tmp_path):
    messages: queue.SimpleQueue = queue.SimpleQueue()
    process = RunProcess(request_for(root, tiny), messages)
    contents = ended(messages)
    assert process.end() == (0, "")
    assert [content["evaluation"] for content in contents] == [1, 2]
    here = RunFolder.create(tmp_path / "here", tiny, name="a")
    train_run(here)
    theirs, ours = (read_tensors(folder.last)[0] for folder in (RunFolder(root, "a"), here))
    assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())
    (session,) = RunFolder(root, "a").read_info().provenance
    assert (session.threads, session.command) == (1, "sweep s")


def test_a_process_that_is_told_to_stop_saves_its_run_and_another_goes_on_until_an_answer_prunes_it(root, tiny):
    messages: queue.SimpleQueue = queue.SimpleQueue()
    process = RunProcess(request_for(root, tiny.with_changes(LONG)), messages)
    assert messages.get(timeout=60).content["evaluation"] == 1
    process.stop()
    ended(messages)
    assert process.end()[0] == 143
    stopped = RunFolder(root, "a").read_info()
    assert (stopped.status, stopped.message) == ("stopped", "stopped by its sweep")
    process = RunProcess(request_for(root, tiny.with_changes(LONG), waits=True), messages)
    for answer in ("continue", "prune"):
        assert messages.get(timeout=60).content["evaluation"] > 1
        process.send(answer)
    ended(messages)
    assert process.end()[0] == 0
    pruned = RunFolder(root, "a").read_info()
    assert (pruned.status, pruned.message) == ("stopped", "pruned by its sweep")
    assert stopped.step < pruned.step <= stopped.step + 41


@pytest.fixture
def work() -> Iterator[Callable[[Request], int]]:
    """Return a function that does the work of a process in this one: it returns the exit code."""
    ours, handler = os.dup(0), signal.getsignal(signal.SIGTERM)
    theirs, to_it = os.pipe()
    os.dup2(theirs, 0)
    os.close(theirs)

    def run(request: Request) -> int:
        os.write(to_it, f"{request.model_dump_json()}\n".encode())
        return main()

    yield run
    os.close(to_it)
    os.dup2(ours, 0)
    os.close(ours)
    signal.signal(signal.SIGTERM, handler)


def test_a_signal_ends_a_process_that_saves_its_run(root, tiny, work, monkeypatch):
    monkeypatch.setattr("builtins.print", lambda *_, **__: signal.raise_signal(signal.SIGTERM))  # at an evaluation
    assert work(request_for(root, tiny.with_changes(LONG))) == 143
    assert RunFolder(root, "a").read_info().status == "stopped"


def test_a_process_whose_reports_nobody_reads_saves_its_run_and_ends(root, tiny):
    request = request_for(root, tiny.with_changes(LONG)).model_dump_json()
    command = [sys.executable, "-m", "core.runs.sweeps.worker"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.write(f"{request}\n".encode())
        process.stdin.flush()  # and stays open
        assert process.wait(timeout=60) == 143
    info = RunFolder(root, "a").read_info()
    assert (info.status, info.message) == ("stopped", "stopped by its sweep")


def test_a_process_whose_driver_is_killed_saves_its_run_and_ends(root, tiny):
    preset = tiny.with_changes(LONG)
    program = (
        "import queue, sys; from core.runs.sweeps.processes import RunProcess; "
        "from core.runs.sweeps.worker import Request; "
        "messages = queue.SimpleQueue(); RunProcess(Request.model_validate_json(sys.argv[1]), messages); "
        "messages.get(); print('trains', flush=True); messages.get(); import time; time.sleep(60)"
    )
    command = [sys.executable, "-c", program, request_for(root, preset).model_dump_json()]
    driver = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert driver.stdout.readline() == b"trains\n"
    driver.kill()
    driver.wait()
    driver.stdout.close()
    for _ in range(200):
        if (status := RunFolder(root, "a").read_info().status) == "stopped":
            break
        time.sleep(0.05)
    assert status == "stopped"


def test_a_plugin_that_has_changed_since_the_sweep_was_started_is_refused_on_standard_error(
    root, tiny, tmp_path, work, capsys, own_plugins
):
    file = tmp_path / "mine.py"
    file.write_text("")
    earlier = LoadedPlugin(path=str(file), sha256="0" * 64)
    assert work(request_for(root, tiny, plugins=(earlier,))) == 2
    changed = "--plugin mine.py, or a file that it imports, has changed since the sweep was started\n"
    assert capsys.readouterr() == ("", changed)
    assert not RunFolder(root, "a").exists()


def test_the_end_of_a_process_tells_its_code_and_its_last_words():
    messages: queue.SimpleQueue = queue.SimpleQueue()
    process = RunProcess(Request.model_construct(run="a"), messages)
    assert ended(messages) == []
    code, words = process.end()
    assert (code, "ValidationError" in words) == (1, True)


def test_cores_are_those_of_the_container(monkeypatch, tmp_path):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(processes, "_CGROUP_CPUS", quota)
    assert usable_cores() == 8
    for text, cores in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)):
        quota.write_text(text)
        assert usable_cores() == cores
