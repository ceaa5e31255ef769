"""The process of a run: it is an ordinary run, and ends by itself when the program that started it is gone."""

import os
import queue
import signal
import subprocess
import sys
import time

import torch

from core.config.preset import LoadedPlugin
from core.runs import RunFolder
from core.runs.sweeps import processes
from core.runs.sweeps.processes import REPOSITORY, RunProcess, usable_cores
from core.runs.sweeps.worker import Request
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


def test_a_process_that_is_told_to_stop_saves_its_run(root, tiny):
    messages: queue.SimpleQueue = queue.SimpleQueue()
    process = RunProcess(request_for(root, tiny.with_changes(LONG)), messages)
    assert messages.get(timeout=60).content["evaluation"] == 1
    process.stop()
    ended(messages)
    assert process.end()[0] == 143
    info = RunFolder(root, "a").read_info()
    assert (info.status, info.message) == ("stopped", "stopped by its sweep")
    process = RunProcess(request_for(root, tiny.with_changes(LONG)), messages)
    assert messages.get(timeout=60).content["evaluation"] > 1
    os.kill(process.pid, signal.SIGTERM)
    ended(messages)
    assert process.end()[0] == 143


def test_an_answer_prunes_a_run(root, tiny):
    messages: queue.SimpleQueue = queue.SimpleQueue()
    process = RunProcess(request_for(root, tiny.with_changes(LONG), waits=True), messages)
    for answer in ("continue", "prune"):
        assert messages.get(timeout=60).content is not None
        process.send(answer)
    ended(messages)
    assert process.end()[0] == 0
    assert (RunFolder(root, "a").read_info().message, RunFolder(root, "a").read_info().step) == (
        "pruned by its sweep",
        41,
    )


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


def test_a_plugin_that_has_changed_since_the_sweep_was_started_is_refused_on_standard_error(root, tiny, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("")
    earlier = LoadedPlugin(path=str(file), sha256="0" * 64)
    messages: queue.SimpleQueue = queue.SimpleQueue()
    process = RunProcess(request_for(root, tiny, plugins=(earlier,)), messages)
    assert ended(messages) == []
    changed = "--plugin mine.py, or a file that it imports, has changed since the sweep was started"
    assert process.end() == (2, changed)
    assert not RunFolder(root, "a").exists()


def test_cores_are_those_of_the_container(monkeypatch, tmp_path):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(processes, "_CGROUP_CPUS", quota)
    assert usable_cores() == 8
    for text, cores in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)):
        quota.write_text(text)
        assert usable_cores() == cores
