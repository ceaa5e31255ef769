"""SIGKILL at a random moment: no file is torn, no completed save is lost, and the run resumes bit for bit."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from core.runs import RunFolder
from core.runs.training_state import load_state
from core.storage.tensor_file import is_intact, load_weights, previous_path
from core.teaching.bugs import new_state
from tests.faults.children import processes, save_repeatedly, train_on
from tests.faults.fingerprints import fingerprint
from tests.support.run_helpers import wait_for

SAVE_KILLS = 200
TRAINING_KILLS = 12  # of each family


def kill(process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def received(connection) -> list:
    """Return all messages sent before the connection closed."""
    messages = []
    try:
        while True:
            messages.append(connection.recv())
    except EOFError:
        return messages


def leftovers(folder: RunFolder) -> list[str]:
    return [name for name in os.listdir(folder.path) if name.endswith(".tmp")]


def recorded(folder: RunFolder) -> int:
    """Return how many lines a run's metrics have."""
    return folder.metrics.read_bytes().count(b"\n") if folder.metrics.exists() else 0


def test_killed_saves_tear_no_file_and_lose_no_completed_save(root, tiny):
    folder, rng, context = RunFolder.create(root, tiny, name="a"), random.Random(1), processes()
    acknowledged, torn, lost, temporaries, swept = {"best": 0, "last": 0}, 0, 0, 0, 0
    saves = 0
    model = new_state(tiny).model
    for _ in range(SAVE_KILLS):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=save_repeatedly, args=(root, sender))
        process.start()
        sender.close()
        assert receiver.recv() == "ready"
        messages = [receiver.recv() for _ in range(rng.randrange(4))]
        time.sleep(rng.uniform(0.0, 0.03))
        kill(process)
        messages += received(receiver)
        saves += len(messages)
        acknowledged |= dict(messages)
        for path in (folder.best, folder.last):
            torn += path.exists() and not is_intact(path)
            torn += previous_path(path).exists() and not is_intact(previous_path(path))
        if acknowledged["best"]:
            step = load_weights(folder.best, model)["step"]
            lost += not acknowledged["best"] <= step <= acknowledged["best"] + 1
            lost += not all((each == step).all() for each in model.state_dict().values())
            acknowledged["best"] = step  # a file that was read must not be lost either
        if acknowledged["last"]:
            step = load_state(folder.last, tiny).step
            lost += not acknowledged["last"] <= step <= acknowledged["last"] + 1
            acknowledged["last"] = step
        left = len(leftovers(folder))
        temporaries += left
        folder.lock().release()  # as the next process that resumes the run does
        swept += left - len(leftovers(folder))
    assert (torn, lost, temporaries - swept) == (0, 0, 0)
    assert saves > SAVE_KILLS
    assert temporaries  # otherwise no kill happened during a write


@pytest.fixture(params=["transformer", "gru"])
def preset(request, tiny, tiny_gru):
    chosen = {"transformer": tiny.with_changes({"model.dropout": 0.1}), "gru": tiny_gru}[request.param]
    return chosen.with_changes({"training.steps": 300, "training.evaluate_every": 10, "training.batch_size": 16})


def test_training_killed_repeatedly_equals_the_uninterrupted_run(root, preset):
    rng, context = random.Random(2), processes()
    for name in ("straight", "killed"):
        RunFolder.create(root, preset, name=name, status="stopped")
    receiver, sender = context.Pipe(duplex=False)
    straight = context.Process(target=train_on, args=(root, "straight", sender))
    straight.start()
    receiver.recv()
    straight.join()
    killed = RunFolder(root, "killed")
    kills = 0
    while killed.read_info().status != "finished":
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=train_on, args=(root, "killed", sender), kwargs={"as_server": kills % 2})
        process.start()
        receiver.recv()
        if kills == TRAINING_KILLS:
            process.join()
            continue
        wanted = recorded(killed) + rng.randint(0, 18)  # twelve of them end before the 300 updates do
        wait_for(lambda wanted=wanted: recorded(killed) >= wanted, seconds=120)
        time.sleep(rng.uniform(0.0, 0.02))  # anywhere within an update, an evaluation or a save
        kill(process)
        kills += 1
        assert killed.read_info().status == "interrupted"
    assert fingerprint(killed) == fingerprint(RunFolder(root, "straight"))
    shutil.rmtree(Path(root))
